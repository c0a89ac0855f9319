/* Frames between workers of different hosts. Would catch: a field that is lost on the way, and
 * bytes that are taken for a frame although no worker writes them. */
#include "autodp/tls/frame.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

static void test_tls_frame__keeps_every_field(void **state)
{
    (void)state;
    const fl_net_frame frames[] = {
        {.kind = FL__TLS_HELLO, .tag = FL__TLS_VERSION},
        {.kind = FL__TLS_DATA, .tag = UINT64_MAX, .size_bytes = fl__tls_message_max},
        {.kind = FL__TLS_DATA, .tag = 0x0102030405060708, .size_bytes = 0},
        {.kind = FL__TLS_CREDIT, .tag = 7, .size_bytes = 0x1112131415},
        {.kind = FL__TLS_RENEW},
        {.kind = FL__TLS_BYE}};
    for (size_t i = 0; i < sizeof frames / sizeof *frames; i++) {
        unsigned char head[FL__TLS_HEAD_BYTES];
        fl_net_frame read;
        memset(head, 0xff, sizeof head);
        fl__tls_frame_put(&frames[i], head);
        assert_int_equal(fl__tls_frame_get(head, &read), FL_OK);
        assert_int_equal(read.kind, frames[i].kind);
        assert_true(read.tag == frames[i].tag && read.size_bytes == frames[i].size_bytes);
    }
}

static void test_tls_frame__is_little_endian(void **state)
{
    (void)state;
    const unsigned char expected[FL__TLS_HEAD_BYTES] = {
        2, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x07, 0x06, 0x05, 4, 3, 2, 1, 0x15, 0x14, 0, 0, 0, 0, 0, 0};
    const fl_net_frame frame = {
        .kind = FL__TLS_DATA, .tag = 0x0102030405060708, .size_bytes = 0x1415};
    unsigned char head[FL__TLS_HEAD_BYTES];
    fl__tls_frame_put(&frame, head);
    assert_memory_equal(head, expected, sizeof head);
}

static void test_tls_frame__refuses_what_no_worker_writes(void **state)
{
    (void)state;
    const fl_net_frame wrong[] = {{.kind = (fl__tls_kind)0},
                                  {.kind = (fl__tls_kind)6},
                                  {.kind = (fl__tls_kind)0xffffffff},
                                  {.kind = FL__TLS_HELLO, .tag = FL__TLS_VERSION + 1},
                                  {.kind = FL__TLS_HELLO, .tag = FL__TLS_VERSION, .size_bytes = 1},
                                  {.kind = FL__TLS_DATA, .size_bytes = fl__tls_message_max + 1},
                                  {.kind = FL__TLS_CREDIT, .size_bytes = UINT64_MAX},
                                  {.kind = FL__TLS_RENEW, .tag = 1},
                                  {.kind = FL__TLS_BYE, .size_bytes = 1}};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        unsigned char head[FL__TLS_HEAD_BYTES];
        fl_net_frame read;
        fl__tls_frame_put(&wrong[i], head);
        assert_int_equal(fl__tls_frame_get(head, &read), FL_EFORMAT);
    }
    const fl_net_frame good = {.kind = FL__TLS_BYE};
    for (int i = 4; i < 8; i++) {
        unsigned char head[FL__TLS_HEAD_BYTES];
        fl_net_frame read;
        fl__tls_frame_put(&good, head);
        head[i] = 1;
        assert_int_equal(fl__tls_frame_get(head, &read), FL_EFORMAT);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tls_frame__keeps_every_field),
        cmocka_unit_test(test_tls_frame__is_little_endian),
        cmocka_unit_test(test_tls_frame__refuses_what_no_worker_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
