/* libFuzzer over the frames that come from a worker of another host: heads are read, and what they
 * say is matched with operations that are under way. A frame that could be read can be written, as
 * the same bytes. */
#include "autodp/tls/state.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { TAGS = 4, MESSAGE_BYTES = 1000 };

static void expect(bool good)
{
    if (!good) {
        abort();
    }
}

static int length_of(const fl_net_queue *queue)
{
    int n = 0;
    for (const fl_net_op *op = queue->first; op != NULL; op = op->next) {
        expect(op->next != NULL || queue->last == op);
        n++;
    }
    expect((queue->first == NULL) == (queue->last == NULL));
    return n;
}

/* A receive and two sends for each of a few tags. */
static void begin(fl__tls_net *net, fl__tls_peer *p)
{
    for (int i = 0; i < 3 * TAGS; i++) {
        fl_net_op *op = NULL;
        expect(fl__net_op_take(&net->ops, &op) == FL_OK);
        op->sends = i % 3 != 0;
        op->frame = (fl_net_frame){
            .kind = FL__TLS_DATA, .tag = (uint64_t)(i / 3), .size_bytes = MESSAGE_BYTES};
        expect((op->sends ? fl__tls_match_send : fl__tls_match_receive)(net, p, op) == FL_OK);
    }
}

static void take(fl__tls_net *net, fl__tls_peer *p, const fl_net_frame *frame)
{
    int n_posted = length_of(&p->posted), n_waiting = length_of(&p->waiting),
        n_ready = length_of(&p->ready);
    if (frame->kind == FL__TLS_DATA) {
        fl_net_op *op = fl__tls_match_data(p, frame);
        expect(length_of(&p->posted) == n_posted - (op != NULL));
        expect(op == NULL || frame->size_bytes <= op->frame.size_bytes);
        if (op != NULL) {
            fl__net_op_give(&net->ops, op);
        }
    } else if (frame->kind == FL__TLS_CREDIT) {
        fl_status status = fl__tls_match_credit(net, p, frame);
        int moved = n_waiting - length_of(&p->waiting);
        expect(moved == length_of(&p->ready) - n_ready && (moved == 0 || status == FL_OK));
        expect(length_of(&p->credits) == p->n_credits);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fl__tls_net net = {.most_records = 1};
    fl__tls_peer p = {.rank = 1};
    begin(&net, &p);
    for (; size >= FL__TLS_HEAD_BYTES; data += FL__TLS_HEAD_BYTES, size -= FL__TLS_HEAD_BYTES) {
        fl_net_frame frame;
        unsigned char again[FL__TLS_HEAD_BYTES];
        if (fl__tls_frame_get(data, &frame) != FL_OK) {
            break;
        }
        fl__tls_frame_put(&frame, again);
        expect(memcmp(again, data, sizeof again) == 0);
        take(&net, &p, &frame);
    }
    fl__net_pool_free(&net.ops);
    return 0;
}
