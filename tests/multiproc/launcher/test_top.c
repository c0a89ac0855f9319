/* frostline top against a live run: in a pipe, and on a pseudo-terminal. Would catch: a screen that
 * stays empty, a key that acts before it was confirmed or does not act after it was, a resize that
 * is not followed, a terminal that is left in disorder, and an end of the run that it does not see.
 */
#include "device/system/clock.h"
#include "support/formats/vt52.h"
#include "support/runs/live_run.h"
#include "support/shell.h"

#include <poll.h>
#include <pty.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>
#include <utmp.h>

#include <cmocka.h>

#define ENDLESS                                                                                    \
    "train.batch", "10", "train.evaluate", "false", "train.lr", "1e-4", "devices.count", "2",      \
        "pipe.k", "2", "autodp.r", "1", "pipe.m", "2", "train.epochs", "9000", "train.decay",      \
        "constant", "train.warmup", "0"

/* A frostline top on a terminal of its own: a VT52, of which the screen is known, or for how it
 * leaves the terminal an xterm. */
typedef struct terminal {
    pid_t pid;
    int fd;
    struct termios before;
    vt52 screen;
    char said[256]; /* the last that came */
    size_t n;
} terminal;

static terminal top;

static _Noreturn void be_top(int slave, const live_run *run, const char *type)
{
    login_tty(slave);
    setenv("TERM", type, 1);
    setenv("LC_ALL", "C", 1);
    unsetenv("COLUMNS");
    unsetenv("LINES");
    execl(FL_BINARY_DIR "/frostline", "frostline", "top", run->dir, (char *)NULL);
    _exit(127);
}

static void start_top(const live_run *run, const char *type)
{
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    int slave = -1;
    memset(&top, 0, sizeof top);
    vt52_reset(&top.screen, size.ws_col, size.ws_row);
    assert_int_equal(openpty(&top.fd, &slave, NULL, NULL, &size), 0);
    assert_int_equal(tcgetattr(slave, &top.before), 0);
    fflush(NULL);
    top.pid = fork();
    if (top.pid == 0) {
        be_top(slave, run, type);
    }
    assert_true(top.pid > 0);
    close(slave);
}

static void look(int timeout_ms)
{
    char bytes[4096];
    struct pollfd item = {.fd = top.fd, .events = POLLIN};
    ssize_t n = poll(&item, 1, timeout_ms) > 0 ? read(top.fd, bytes, sizeof bytes) : 0;
    if (n > 0) {
        size_t kept = (size_t)n < sizeof top.said ? (size_t)n : sizeof top.said;
        vt52_take(&top.screen, bytes, (size_t)n);
        memmove(top.said, top.said + kept, sizeof top.said - kept);
        memcpy(top.said + sizeof top.said - kept, bytes + n - kept, kept);
    }
}

/* Wait until the screen shows this text. */
static void await(const char *text)
{
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (vt52_find(&top.screen, text) < 0) {
        look(50);
        if (fl_left_ms(deadline_us) == 0) {
            vt52_print(&top.screen);
            fail_msg("the screen does not show '%s'", text);
        }
    }
}

static void type(const char *keys)
{
    assert_int_equal(write(top.fd, keys, strlen(keys)), (ssize_t)strlen(keys));
}

static void resize(unsigned short width, unsigned short height)
{
    struct winsize size = {.ws_row = height, .ws_col = width};
    vt52_reset(&top.screen, width, height);
    assert_int_equal(ioctl(top.fd, TIOCSWINSZ, &size), 0);
}

/* Wait for its end and look at how it left the terminal; its exit code. */
static int end_top(void)
{
    int wait_status = 0;
    struct termios after;
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (waitpid(top.pid, &wait_status, WNOHANG) == 0) {
        look(20);
        if (fl_left_ms(deadline_us) == 0) {
            kill(top.pid, SIGKILL);
            fail_msg("frostline top does not end");
        }
    }
    look(0);
    assert_int_equal(tcgetattr(top.fd, &after), 0);
    assert_int_equal(after.c_lflag, top.before.c_lflag);
    assert_int_equal(after.c_iflag, top.before.c_iflag);
    assert_int_equal(after.c_oflag, top.before.c_oflag);
    close(top.fd);
    return WIFEXITED(wait_status) ? WEXITSTATUS(wait_status) : 128 + WTERMSIG(wait_status);
}

/* The screen that was there before is back: an xterm has two. */
static bool has_gone_back(void)
{
    static const char back[] = "\033[?1049l";
    return memmem(top.said, sizeof top.said, back, sizeof back - 1) != NULL;
}

/* An xterm is not interpreted: wait for what every first frame ends in. */
static void await_frame(void)
{
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    while (memmem(top.said, sizeof top.said, "quit", 4) == NULL) {
        look(50);
        assert_true(fl_left_ms(deadline_us) > 0);
    }
}

static void await_state(live_run *run, const char *state)
{
    int64_t deadline_us = fl_deadline_us(LIVE_WAIT_MS);
    bool is = false;
    while (!is) {
        json_t *status = live_ask(run, "status", "{}");
        is = strcmp(json_string_value(json_object_get(status, "state")), state) == 0;
        json_decref(status);
        assert_true(is || fl_left_ms(deadline_us) > 0);
    }
}

static void test_top__keys_act_once_they_are_confirmed(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    live_await_step(&run, 5);
    start_top(&run, "vt52");
    await("K 2 x R 1 x M 2");
    await("q quit");
    type("p");
    await("pause the run?");
    type("n");
    await("q quit"); /* the keys are back */
    await_state(&run, "running");
    type("p");
    await("pause the run?");
    type("y");
    await("pause the run: done, from step");
    await("job  paused");
    await_state(&run, "paused");
    type("py");
    await("let the run go on: done, from step");
    await_state(&run, "running");
    type("s9\r"); /* more than there are */
    await("scale to 9 devices?");
    type("y");
    await("refused: found 9 devices, allowed: at most the 2 workers");
    type("q");
    assert_int_equal(end_top(), 0);
    live_await_step(&run, live_status(&run, "step") + 5); /* the run goes on */
    json_decref(live_ask(&run, "stop", "{}"));
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_clean(&run);
}

static void test_top__follows_the_size_and_sees_the_end(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    live_await_step(&run, 5);
    start_top(&run, "vt52");
    await("q quit");
    resize(30, 8);
    await("needs 40 x 10");
    resize(200, 60);
    await("q quit");
    assert_int_equal(vt52_find(&top.screen, "q quit"), 59);
    await("predicted");
    type("?");
    await("any key goes back");
    type(" ");
    await("predicted");
    type("xn");
    await("stop the run after the step in flight?");
    type("y");
    await("job  stopped");
    type("q");
    assert_int_equal(end_top(), 0);
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    live_clean(&run);
}

static void test_top__leaves_a_clean_terminal_on_a_signal(void **state)
{
    (void)state;
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    start_top(&run, "xterm");
    await_frame();
    type("\003"); /* Ctrl-C */
    assert_int_equal(end_top(), 130);
    assert_true(has_gone_back());
    start_top(&run, "xterm");
    await_frame();
    assert_int_equal(kill(top.pid, SIGTERM), 0);
    assert_int_equal(end_top(), 130);
    assert_true(has_gone_back());
    start_top(&run, "vt52");
    await("job  running");
    kill(run.controller, SIGKILL); /* it goes without a word */
    fl_ctl_client_close(&run.ctl);
    assert_int_equal(waitpid(run.controller, NULL, 0), run.controller);
    await("job  lost");
    type("q");
    assert_int_equal(end_top(), 0);
    live_clean(&run);
}

static void test_top__prints_one_frame_where_there_is_no_terminal(void **state)
{
    (void)state;
    static output out;
    char command[512];
    live_run run = live_start((const char *const[]){ENDLESS, NULL});
    live_await_step(&run, 30);
    json_decref(live_ask(&run, "pause", "{}"));
    snprintf(command, sizeof command, "LC_ALL=C COLUMNS=200 LINES=30 '%s/frostline' top '%s'",
             FL_BINARY_DIR, run.dir);
    run_command(NULL, command, &out);
    assert_int_equal(out.exit_code, 0);
    assert_string_equal(out.err, "");
    assert_non_null(strstr(out.out, "paused"));
    assert_non_null(strstr(out.out, "K 2 x R 1 x M 2"));
    assert_non_null(strstr(out.out, "paused at step "));
    assert_non_null(strstr(out.out, "samples/s ---"));
    assert_null(strchr(out.out, '\033'));
    json_decref(live_ask(&run, "stop", "{}"));
    assert_int_equal(live_finish(&run), FL_ESTOPPED);
    snprintf(command, sizeof command, "'%s/frostline' top '%s'", FL_BINARY_DIR, run.dir);
    run_command(NULL, command, &out);
    assert_int_equal(out.exit_code, 2);
    assert_non_null(strstr(out.err, "the run is over (stopped)"));
    live_clean(&run);
}

int main(void)
{
    signal(SIGPIPE, SIG_IGN);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_top__keys_act_once_they_are_confirmed),
        cmocka_unit_test(test_top__follows_the_size_and_sees_the_end),
        cmocka_unit_test(test_top__leaves_a_clean_terminal_on_a_signal),
        cmocka_unit_test(test_top__prints_one_frame_where_there_is_no_terminal),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
