/* Replies that are kept for requests that come twice: the right client's, the right id's, and no
 * more than is allowed. */
#include "control/socket/ctl_replies.h"

#include "device/system/alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static fl_ctl_client client_of(int number)
{
    fl_ctl_client client = {.n = 5};
    snprintf((char *)client.bytes, 6, "c%04d", number);
    return client;
}

static fl_ctl_request request_of(const char *id, uint64_t fingerprint)
{
    fl_ctl_request request = {.fingerprint = fingerprint};
    snprintf(request.id, sizeof request.id, "%s", id);
    return request;
}

static const char *find(fl_ctl_replies *replies, int client, const char *id)
{
    fl_ctl_client c = client_of(client);
    fl_ctl_request r = request_of(id, 7);
    bool same = false;
    const char *text = fl_ctl_replies_find(replies, &c, &r, &same);
    assert_true(text == NULL || same);
    return text;
}

static void keep(fl_ctl_replies *replies, int client, const char *id, const char *text)
{
    fl_ctl_client c = client_of(client);
    fl_ctl_replies_keep(replies, &c, id, 7, text, strlen(text));
}

static void test_replies__belong_to_a_client_and_an_id(void **state)
{
    (void)state;
    fl_ctl_replies *replies = NULL;
    assert_int_equal(fl_ctl_replies_create(&replies), FL_OK);
    assert_null(find(replies, 1, "a"));
    keep(replies, 1, "a", "one");
    keep(replies, 2, "a", "two");
    keep(replies, 1, "b", "three");
    assert_string_equal(find(replies, 1, "a"), "one");
    assert_string_equal(find(replies, 2, "a"), "two");
    assert_string_equal(find(replies, 1, "b"), "three");
    assert_null(find(replies, 2, "b"));
    fl_ctl_client c = client_of(1);
    fl_ctl_request other = request_of("a", 8);
    bool same = true;
    assert_non_null(fl_ctl_replies_find(replies, &c, &other, &same));
    assert_false(same);
    fl_ctl_replies_destroy(&replies);
    assert_null(replies);
}

/* Would catch: memory that grows with the number of clients or requests; a busy client that
 * displaces the stored replies of others. */
static void test_replies__are_bounded(void **state)
{
    (void)state;
    fl_ctl_replies *replies = NULL;
    char id[16], large[FL_CTL_REPLY_MAX + 1];
    assert_int_equal(fl_ctl_replies_create(&replies), FL_OK);
    keep(replies, 0, "mine", "kept");
    for (int i = 0; i < 1000; i++) {
        snprintf(id, sizeof id, "%d", i);
        keep(replies, 1, id, "busy");
    }
    assert_string_equal(find(replies, 0, "mine"), "kept");
    assert_string_equal(find(replies, 1, "999"), "busy");
    snprintf(id, sizeof id, "%d", 999 - FL_CTL_REPLIES);
    assert_null(find(replies, 1, id));
    for (int i = 2; i < 2 + FL_CTL_CLIENTS; i++) {
        keep(replies, i, "x", "newer");
    }
    assert_null(find(replies, 0, "mine"));
    assert_string_equal(find(replies, 2, "x"), "newer");
    memset(large, 'l', sizeof large);
    large[FL_CTL_REPLY_MAX] = 0;
    keep(replies, 2, "large", large);
    assert_null(find(replies, 2, "large"));
    fl_alloc_fail_at(1);
    keep(replies, 2, "unlucky", "text");
    fl_alloc_fail_at(0);
    assert_null(find(replies, 2, "unlucky"));
    fl_ctl_replies_destroy(&replies);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_replies__belong_to_a_client_and_an_id),
        cmocka_unit_test(test_replies__are_bounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
