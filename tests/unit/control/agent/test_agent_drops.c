/* What an agent sends that the controller does not take. Would catch: a line in the log for each of
 * such frames, however many come. */
#include "control/agent/client/agent_client_state.h"
#include "control/agent/wire/agent_wire.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

enum { FRAMES = 30, TEXT_BYTES = 1 << 14 };

/* What the log says once the controller has read FRAMES messages of these bytes. */
static void read_all(const void *bytes, size_t n, char text[TEXT_BYTES])
{
    int sockets[2];
    fl_worker worker = {.incarnation = 1};
    fl__agent_requests requests = {0};
    fl_agent agent = {.n_workers = 1, .workers = &worker, .requests = &requests};
    FILE *file = tmpfile();
    int own = dup(STDERR_FILENO);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets), 0);
    agent.socket = sockets[0];
    assert_true(file != NULL && own >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    for (int i = 0; i < FRAMES; i++) {
        assert_int_equal(send(sockets[1], bytes, n, 0), n);
        fl__agent_read(&agent);
    }
    assert_true(dup2(own, STDERR_FILENO) >= 0);
    close(own);
    rewind(file);
    text[fread(text, 1, TEXT_BYTES - 1, file)] = '\0';
    fclose(file);
    close(sockets[0]);
    close(sockets[1]);
}

/* Two lines: the first message, and the tenth. */
static void expect_counted(const void *bytes, size_t n, const char *says)
{
    char text[TEXT_BYTES];
    read_all(bytes, n, text);
    const char *second = strchr(text, '\n');
    if (strstr(text, says) == NULL || second == NULL || strchr(second + 1, '\n') == NULL ||
        strchr(second + 1, '\n')[1] != '\0' || strstr(second, "that is number 10\n") == NULL) {
        fail_msg("\"%s\" in two lines expected: %s", says, text);
    }
}

static void expect_frame_counted(const fl_agent_frame *frame, const char *says)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    expect_counted(bytes, fl_agent_wire_put(frame, bytes), says);
}

static void test_agent_drops__are_counted(void **state)
{
    (void)state;
    const fl_agent_frame of_controller = {.type = FL_AGENT_KILL, .incarnation = 1},
                         of_another = {.type = FL_AGENT_EXITED, .incarnation = 7},
                         of_no_host = {.type = FL_AGENT_HOST,
                                       .rank = 1,
                                       .host = {.news = FL_HOST_NEWS_LOST, .text = "gone"}};
    expect_counted("junk", 4, "dropped 4 bytes from the agent: ");
    expect_frame_counted(&of_controller, "the controller sends these");
    expect_frame_counted(&of_another, "dropped what the agent reports of process 7 of rank 0");
    expect_frame_counted(&of_no_host, "dropped news of a host with the first rank 1");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_agent_drops__are_counted)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
