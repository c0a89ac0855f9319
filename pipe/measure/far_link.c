/* Member 0 says what comes next, member 1 follows:
 *
 *     PING      8 bytes there, 8 bytes back
 *     THERE     a long message there, 8 bytes back
 *     BACK      8 bytes there, a long message back
 *     REDUCE    half of the payload in both directions at the same time, twice, as a ring of two
 *     END
 *
 * All times are those of member 0, so the clocks of the hosts do not matter. */
#include "pipe/measure/far_link.h"

#include "autodp/net/tag.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "pipe/measure/quantile.h"

#include <string.h>

typedef enum act { PING = 1, THERE, BACK, REDUCE, END } act;

/* 5 long messages each way and 3 payloads of an all-reduce: less than 64 MiB each way. */
enum { PINGS = 40, LONGS = 5, REDUCES = 3, TRIAL_BYTES = 64 << 10, LONG_BYTES = 8 << 20 };

typedef struct far_order {
    uint32_t act, size_bytes;
} far_order;

typedef struct far_pair {
    fl_net *net;
    int me;
    int64_t budget_us, deadline_us;
    far_order *order; /* [2] to send, and received */
    unsigned char *data;
    fl_net_buffer *order_out, *order_in, *data_out, *data_in;
} far_pair;

static uint64_t tag_of(bool is_order)
{
    return fl_tag(FL_TAG_CHANNEL, is_order ? 1 : 2);
}

static fl_status send_bytes(const far_pair *p, bool is_order, size_t n)
{
    fl_net_buffer *b = is_order ? p->order_out : p->data_out;
    FL_TRY(fl_net_send(b, 1 - p->me, tag_of(is_order), 0, n));
    return fl_net_wait_send(b, p->deadline_us);
}

static fl_status post_bytes(const far_pair *p, bool is_order, size_t n)
{
    return fl_net_recv(is_order ? p->order_in : p->data_in, 1 - p->me, tag_of(is_order), 0, n);
}

static fl_status take_bytes(const far_pair *p, bool is_order)
{
    return fl_net_wait_recv(is_order ? p->order_in : p->data_in, p->deadline_us);
}

static fl_status receive_bytes(const far_pair *p, bool is_order, size_t n)
{
    FL_TRY(post_bytes(p, is_order, n));
    return take_bytes(p, is_order);
}

/* Each of the two sends the one half, and has the other's; then the sums the same way. */
static fl_status reduce_bytes(const far_pair *p, size_t n)
{
    for (int i = 0; i < 2; i++) {
        FL_TRY(post_bytes(p, false, n / 2));
        FL_TRY(send_bytes(p, false, n / 2));
        FL_TRY(take_bytes(p, false));
    }
    return FL_OK;
}

/* ---- member 1 ---- */

static fl_status follow(const far_pair *p, bool *ended)
{
    const far_order *c = &p->order[1];
    FL_TRY(receive_bytes(p, true, sizeof *c));
    *ended = c->act == END;
    if (c->size_bytes > LONG_BYTES || c->act < PING || c->act > END) {
        return fl_fail(FL_EFORMAT, "an order %u with %u bytes", c->act, c->size_bytes);
    }
    switch ((act)c->act) {
    case THERE:
        FL_TRY(receive_bytes(p, false, c->size_bytes));
        return send_bytes(p, true, sizeof *c);
    case BACK:
        return send_bytes(p, false, c->size_bytes);
    case REDUCE:
        return reduce_bytes(p, c->size_bytes);
    case PING:
    case END:
        break;
    }
    return send_bytes(p, true, sizeof *c);
}

/* ---- member 0 ---- */

static fl_status lead(const far_pair *p, act what, size_t n, double *us)
{
    int64_t begun_ns = fl_now_ns();
    p->order[0] = (far_order){.act = (uint32_t)what, .size_bytes = (uint32_t)n};
    FL_TRY(send_bytes(p, true, sizeof *p->order));
    if (what == REDUCE) {
        FL_TRY(reduce_bytes(p, n));
    } else if (what == BACK) {
        FL_TRY(receive_bytes(p, false, n));
    } else {
        FL_TRY(what == THERE ? send_bytes(p, false, n) : FL_OK);
        FL_TRY(receive_bytes(p, true, sizeof *p->order));
    }
    *us = (double)(fl_now_ns() - begun_ns) * 1e-3;
    return FL_OK;
}

/* Up to n times in this share of the budget; the lower quartile. */
static fl_status repeat(const far_pair *p, act what, size_t size_bytes, int n, double share,
                        double *us)
{
    double took[PINGS], warm_up;
    int64_t until_us = fl_now_us() + (int64_t)(share * (double)p->budget_us);
    int done = 0;
    FL_TRY(lead(p, what, size_bytes, &warm_up));
    while (done < n && (done == 0 || fl_now_us() < until_us)) {
        FL_TRY(lead(p, what, size_bytes, &took[done]));
        done++;
    }
    *us = fl_quantile_lower(took, done);
    return FL_OK;
}

/* Bytes for the time that goes beyond what empty messages take. */
static double rate_of(size_t size_bytes, double us, double empty_us)
{
    double moving_us = us > 2.0 * empty_us ? us - empty_us : 0.5 * us;
    return (double)size_bytes / (moving_us > 1e-3 ? moving_us : 1e-3);
}

/* So long that a few fit the budget, by the time of a trial. */
static size_t choose_size(const far_pair *p, double trial_us, double empty_us)
{
    double rate = rate_of(TRIAL_BYTES, trial_us, empty_us);
    double size = rate * (double)p->budget_us / 32.0;
    return size > LONG_BYTES    ? LONG_BYTES
           : size < TRIAL_BYTES ? TRIAL_BYTES
                                : (size_t)size & ~(size_t)7;
}

static fl_status lead_all(const far_pair *p, fl_far_link *out)
{
    double round_us, trial_us, us[2], reduce_us, last_us;
    FL_TRY(repeat(p, PING, 0, PINGS, 0.2, &round_us));
    FL_TRY(lead(p, THERE, TRIAL_BYTES, &trial_us));
    size_t n = choose_size(p, trial_us, round_us);
    FL_TRY(repeat(p, THERE, n, LONGS - 1, 0.25, &us[0]));
    FL_TRY(repeat(p, BACK, n, LONGS - 1, 0.25, &us[1]));
    FL_TRY(repeat(p, REDUCE, n, REDUCES - 1, 0.25, &reduce_us));
    FL_TRY(lead(p, END, 0, &last_us));
    *out = (fl_far_link){.latency_us = 0.5 * round_us,
                         .bytes_per_us = {rate_of(n, us[0], round_us), rate_of(n, us[1], round_us)},
                         /* the order, then two messages one after the other */
                         .reduce_bytes_per_us = rate_of(n, reduce_us, 1.5 * round_us)};
    return FL_OK;
}

/* ---- both ---- */

static fl_status open_pair(far_pair *p)
{
    FL_TRY(fl_alloc(2 * sizeof *p->order, (void **)&p->order));
    FL_TRY(fl_alloc((size_t)2 * LONG_BYTES, (void **)&p->data));
    FL_TRY(fl_net_buffer_create(p->net, &p->order[0], sizeof *p->order, &p->order_out));
    FL_TRY(fl_net_buffer_create(p->net, &p->order[1], sizeof *p->order, &p->order_in));
    FL_TRY(fl_net_buffer_create(p->net, p->data, LONG_BYTES, &p->data_out));
    return fl_net_buffer_create(p->net, p->data + LONG_BYTES, LONG_BYTES, &p->data_in);
}

static void close_pair(far_pair *p)
{
    fl_net_buffer_destroy(&p->order_out);
    fl_net_buffer_destroy(&p->order_in);
    fl_net_buffer_destroy(&p->data_out);
    fl_net_buffer_destroy(&p->data_in);
    fl_free(p->order);
    fl_free(p->data);
}

fl_status fl_far_link_measure(fl_net *net, int me, int64_t budget_ms, int64_t timeout_ms,
                              fl_far_link *out)
{
    bool ended = false;
    far_pair p = {.net = net,
                  .me = me,
                  .budget_us = budget_ms * 1000,
                  .deadline_us = fl_deadline_us(budget_ms + timeout_ms)};
    memset(out, 0, sizeof *out);
    fl_status status = open_pair(&p);
    if (status == FL_OK && me == 0) {
        status = lead_all(&p, out);
    }
    while (status == FL_OK && me != 0 && !ended) {
        status = follow(&p, &ended);
    }
    close_pair(&p);
    return status;
}

fl_link_cost fl_far_link_cost(const fl_far_link *link)
{
    double there = link->bytes_per_us[0], back = link->bytes_per_us[1];
    return (fl_link_cost){.latency_us = link->latency_us,
                          .bytes_per_us = there < back ? there : back,
                          .reduce_bytes_per_us = link->reduce_bytes_per_us};
}
