/* Connections whose lost data is sent again without long pauses. Would catch: options that the
 * kernel does not take, and connections of a listening socket that do not inherit them. */
#include "device/system/tcp_retry.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { RTO_MAX_OPTION = 44 };

static int option_of(int fd, int option)
{
    int value = -1;
    socklen_t size = sizeof value;
    return getsockopt(fd, IPPROTO_TCP, option, &value, &size) == 0 ? value : -1;
}

static void test_tcp_retry__a_connection_inherits_it(void **state)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    int listener = socket(AF_INET, SOCK_STREAM, 0), client = socket(AF_INET, SOCK_STREAM, 0);
    (void)state;
    fl_tcp_retry_evenly(listener);
    assert_int_equal(bind(listener, (struct sockaddr *)&address, size), 0);
    assert_int_equal(listen(listener, 1), 0);
    assert_int_equal(getsockname(listener, (struct sockaddr *)&address, &size), 0);
    assert_int_equal(connect(client, (struct sockaddr *)&address, size), 0);
    int server = accept(listener, NULL, NULL);
    assert_true(server >= 0);
    assert_int_equal(option_of(server, TCP_THIN_LINEAR_TIMEOUTS), 1);
    assert_int_equal(option_of(client, TCP_THIN_LINEAR_TIMEOUTS), 0);
    if (option_of(client, RTO_MAX_OPTION) < 0) {
        print_message("this kernel has no limit for the pause\n");
    } else {
        assert_int_equal(option_of(server, RTO_MAX_OPTION), 1000);
    }
    close(server);
    close(client);
    close(listener);
}

/* A number that is no socket's by now. */
static void test_tcp_retry__other_descriptors_are_left_alone(void **state)
{
    int ends[2];
    (void)state;
    assert_int_equal(pipe(ends), 0);
    fl_tcp_retry_evenly(ends[0]);
    close(ends[0]);
    close(ends[1]);
    fl_tcp_retry_evenly(ends[0]);
    fl_tcp_retry_evenly(-1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tcp_retry__a_connection_inherits_it),
        cmocka_unit_test(test_tcp_retry__other_descriptors_are_left_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
