/* The agent over real processes: it starts, watches and ends workers, and survives what its
 * controller does, or does not do. Nothing here waits for a time: every wait looks for what it
 * wants until a deadline after which the test fails. */
#include "control/agent/client/agent_client.h"

#include "control/agent/wire/agent_wire.h"
#include "device/system/clock.h"
#include "support/folder.h"
#include "support/nap.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sockios.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { N = 3, WAIT_MS = 30000, EXIT_CODE = 7 };

/* Between the test and its workers. */
typedef struct shared {
    atomic_int n_begun[N];
    atomic_int pid[N];   /* of the process that began last */
    atomic_int leaves;   /* a bit for each rank that may leave */
    atomic_int agent;    /* its process, as its workers see it */
    atomic_int n_closed; /* calls of `release` */
    atomic_int held;     /* a process that reaps no child */
} shared;

static fl_worker_birth birth; /* of every worker */

typedef struct rig {
    char dir[FOLDER_SIZE];
    shared *shared;
    fl_signals signals;
    fl_flight *flight;
    fl_worker workers[N];
    fl_agent_options options;
    fl_agent *agent;
} rig;

static shared *now_shared; /* of the test that runs */

/* In place of the C library's, for all of this program: inside the kernel, a parent may have to
 * wait for a thread of the child that it reaps, and nothing ends that wait. */
pid_t waitpid(pid_t pid, int *stat_loc, int options)
{
    while (now_shared != NULL && atomic_load(&now_shared->held) == getpid()) {
        nap(1000);
    }
    return wait4(pid, stat_loc, options, NULL);
}

static int work(void *context, const fl_worker_birth *mine, const char *endpoint)
{
    int rank = mine->rank;
    shared *s = ((rig *)context)->shared;
    printf("worker %d at %s, step %d of %d\n", rank, endpoint, (int)mine->step,
           (int)mine->end_step);
    atomic_store(&s->agent, (int)getppid());
    atomic_store(&s->pid[rank], (int)getpid());
    atomic_fetch_add(&s->n_begun[rank], 1);
    while (!(atomic_load(&s->leaves) & 1 << rank)) {
        nap(1000);
    }
    return EXIT_CODE;
}

static void note_release(void *context)
{
    atomic_fetch_add(&((rig *)context)->shared->n_closed, 1);
}

static int set_up(void **state)
{
    const fl_plan plan = {.generation = 4,
                          .K = 1,
                          .R = N - 1,
                          .M = 1,
                          .n_layers = 2,
                          .n_workers = N,
                          .first = {0, 2},
                          .rank_of = {0, 1}};
    rig *r = calloc(1, sizeof *r);
    make_folder(r->dir);
    r->shared =
        mmap(NULL, sizeof *r->shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    now_shared = r->shared;
    fl_worker_birth_first(&plan, 40, &birth);
    fl_signals_block(&r->signals);
    assert_int_equal(fl_flight_create(N, &r->flight), FL_OK);
    r->options = (fl_agent_options){.n_workers = N,
                                    .dir_fd = open(r->dir, O_RDONLY | O_DIRECTORY),
                                    .flight = r->flight,
                                    .signals = &r->signals,
                                    .endpoint = "nowhere",
                                    .worker = work,
                                    .context = r,
                                    .release = note_release,
                                    .release_context = r};
    fl_workers_init(r->workers, N, &plan, 0);
    *state = r;
    return 0;
}

static int tear_down(void **state)
{
    rig *r = *state;
    fl_agent_close(&r->agent, FL_AGENT_ENDS_OVER);
    fl_signals_restore(&r->signals);
    fl_flight_destroy(&r->flight);
    close(r->options.dir_fd);
    now_shared = NULL;
    munmap(r->shared, sizeof *r->shared);
    int failed = remove_folder(r->dir);
    free(r);
    return failed;
}

/* ---- waiting ---- */

#define AWAIT(condition)                                                                           \
    for (int64_t until_us = fl_deadline_us(WAIT_MS); !(condition); nap(1000)) {                    \
        if (fl_left_ms(until_us) == 0) {                                                           \
            fail_msg("never: %s", #condition);                                                     \
        }                                                                                          \
    }

/* Neither running nor waiting to be reaped; the test adopts what an agent leaves. */
static bool is_gone(pid_t pid)
{
    (void)waitpid(pid, NULL, WNOHANG);
    return kill(pid, 0) != 0 && errno == ESRCH;
}

static bool all_begun(const shared *s)
{
    for (int i = 0; i < N; i++) {
        if (atomic_load(&s->n_begun[i]) == 0) {
            return false;
        }
    }
    return true;
}

static void start(rig *r)
{
    assert_int_equal(fl_agent_open(&r->options, r->workers, &r->agent), FL_OK);
    assert_int_equal(fl_agent_start_all(r->agent, &birth), FL_OK);
    AWAIT(all_begun(r->shared));
}

static void assert_all_gone(const rig *r)
{
    for (int i = 0; i < N; i++) {
        AWAIT(is_gone(r->workers[i].pid));
    }
}

static char *read_log(const rig *r, int rank)
{
    char name[FL_AGENT_LOG_NAME_BYTES];
    char *text = calloc(1, 4096);
    int fd = openat(r->options.dir_fd, fl_agent_log_name(rank, name), O_RDONLY);
    assert_true(fd >= 0);
    assert_true(read(fd, text, 4095) > 0);
    close(fd);
    return text;
}

/* ---- the controller's end ---- */

static void test_agent__starts_workers_and_reports_their_exits(void **state)
{
    rig *r = *state;
    start(r);
    assert_int_equal(atomic_load(&r->shared->n_closed), 1);
    assert_int_equal(fl_agent_watch(r->agent), N);
    for (int i = 0; i < N; i++) {
        assert_int_equal(r->workers[i].pid, atomic_load(&r->shared->pid[i]));
    }
    assert_int_not_equal(atomic_load(&r->shared->agent), getpid());
    atomic_store(&r->shared->leaves, 1 << 1);
    AWAIT(fl_agent_watch(r->agent) == N - 1);
    assert_true(r->workers[1].exited_us > 0 && !r->workers[1].killed);
    assert_true(WIFEXITED(r->workers[1].wait_status));
    assert_int_equal(WEXITSTATUS(r->workers[1].wait_status), EXIT_CODE);
    char *log = read_log(r, 1);
    assert_non_null(strstr(log, "worker 1: stage 0 of replica 1, process "));
    assert_non_null(strstr(log, "worker 1 at nowhere, step 0 of 40\n"));
    free(log);
    log = read_log(r, 2);
    assert_non_null(strstr(log, "standby, process "));
    free(log);
}

static void test_agent__kills_one_worker_alone(void **state)
{
    rig *r = *state;
    start(r);
    fl_agent_kill(r->agent, &r->workers[1], 1);
    assert_true(r->workers[1].killed && WIFSIGNALED(r->workers[1].wait_status));
    assert_int_equal(WTERMSIG(r->workers[1].wait_status), SIGKILL);
    AWAIT(is_gone(r->workers[1].pid)); /* the agent reaps it */
    assert_int_equal(fl_agent_watch(r->agent), N - 1);
    assert_int_equal(kill(r->workers[0].pid, 0), 0);
}

static void test_agent__looks_at_processes(void **state)
{
    rig *r = *state;
    fl_process_look look;
    start(r);
    assert_false(fl_agent_look(r->agent, 0, &look)); /* asks */
    AWAIT(fl_agent_watch(r->agent) == N && fl_agent_look(r->agent, 0, &look));
    assert_true(look.cpu_us > 0);
    fl_agent_kill(r->agent, &r->workers[0], 1);
    for (int i = 0; i < 20; i++) { /* no look at what has ended */
        fl_agent_watch(r->agent);
        bool known = fl_agent_look(r->agent, 0, &look);
        assert_true(!known || i < 2); /* an answer from before may still come */
        nap(1000);
    }
}

/* Would catch: an exit that the controller learns only once the agent has reaped the worker, which
 * may take minutes; and a run that does not end without that agent. */
static void test_agent__tells_an_exit_before_it_reaps(void **state)
{
    rig *r = *state;
    start(r);
    pid_t agent = atomic_load(&r->shared->agent);
    atomic_store(&r->shared->held, (int)agent);
    atomic_store(&r->shared->leaves, 1 << 1);
    AWAIT(fl_agent_watch(r->agent) == N - 1);
    assert_int_equal(WEXITSTATUS(r->workers[1].wait_status), EXIT_CODE);
    assert_int_equal(kill(r->workers[1].pid, 0), 0); /* a zombie */
    fl_agent_close(&r->agent, FL_AGENT_ENDS_OVER);
    assert_true(is_gone(agent));
    assert_all_gone(r);
}

/* Would catch: exits at the end of a run that nobody learns, for the same reason. */
static void test_agent__tells_all_exits_before_it_reaps_at_its_end(void **state)
{
    rig *r = *state;
    start(r);
    atomic_store(&r->shared->held, atomic_load(&r->shared->agent));
    fl_agent_close(&r->agent, FL_AGENT_ENDS_OVER);
    for (int i = 0; i < N; i++) {
        assert_true(r->workers[i].exited_us > 0 && WIFSIGNALED(r->workers[i].wait_status));
    }
    assert_all_gone(r);
}

/* Would catch: an orphan, or a zombie, after the end of a run. */
static void test_agent__ends_all_when_it_is_closed(void **state)
{
    rig *r = *state;
    start(r);
    pid_t agent = atomic_load(&r->shared->agent);
    fl_agent_close(&r->agent, FL_AGENT_ENDS_OVER);
    assert_null(r->agent);
    assert_true(is_gone(agent));
    for (int i = 0; i < N; i++) {
        assert_true(kill(r->workers[i].pid, 0) != 0 && errno == ESRCH);
        assert_true(WIFSIGNALED(r->workers[i].wait_status));
    }
}

/* Would catch: workers that outlive their agent, and a controller that does not notice. */
static void test_agent__takes_its_workers_with_it(void **state)
{
    rig *r = *state;
    char text[256];
    start(r);
    assert_false(fl_agent_is_lost(r->agent, text, sizeof text));
    kill(atomic_load(&r->shared->agent), SIGKILL);
    AWAIT(fl_agent_watch(r->agent) == 0);
    assert_true(fl_agent_is_lost(r->agent, text, sizeof text));
    assert_non_null(strstr(text, "the agent, the parent of the workers, was killed by signal 9"));
    assert_all_gone(r);
    fl_agent_kill(r->agent, r->workers, N); /* what comes late finds nobody, and does not wait */
    fl_process_look look;
    assert_false(fl_agent_look(r->agent, 0, &look));
}

/* Would catch: a controller that waits for an agent which does not run, an exit that is lost, and
 * workers that are killed because their agent was stopped. */
static void test_agent__may_be_stopped(void **state)
{
    rig *r = *state;
    fl_process_look look;
    start(r);
    pid_t agent = atomic_load(&r->shared->agent);
    kill(agent, SIGSTOP);
    atomic_store(&r->shared->leaves, 1 << 0);
    for (int i = 0; i < 2000; i++) {
        assert_int_equal(fl_agent_watch(r->agent), N);
        (void)fl_agent_look(r->agent, 1, &look);
    }
    fl_agent_kill(r->agent, &r->workers[2], 1); /* gives up waiting */
    assert_true(r->workers[2].killed && r->workers[2].exited_us == 0);
    assert_int_equal(kill(r->workers[1].pid, 0), 0);
    kill(agent, SIGCONT);
    AWAIT(fl_agent_watch(r->agent) == 1);
    assert_int_equal(WEXITSTATUS(r->workers[0].wait_status), EXIT_CODE);
    assert_int_equal(WTERMSIG(r->workers[2].wait_status), SIGKILL);
    assert_true(kill(r->workers[1].pid, 0) == 0);
}

static void test_agent__ends_even_if_it_is_stopped(void **state)
{
    rig *r = *state;
    start(r);
    kill(atomic_load(&r->shared->agent), SIGSTOP);
    fl_agent_close(&r->agent, FL_AGENT_ENDS_OVER);
    assert_true(is_gone(atomic_load(&r->shared->agent)));
    assert_all_gone(r);
}

/* Would catch: orphans of a controller that was killed. */
static void test_agent__ends_with_its_controller(void **state)
{
    rig *r = *state;
    pid_t controller = fork();
    if (controller == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL); /* also when an assertion fails */
        if (fl_agent_open(&r->options, r->workers, &r->agent) == FL_OK &&
            fl_agent_start_all(r->agent, &birth) == FL_OK) {
            pause();
        }
        _exit(1);
    }
    AWAIT(all_begun(r->shared));
    kill(controller, SIGKILL);
    assert_int_equal(waitpid(controller, NULL, 0), controller);
    AWAIT(is_gone(atomic_load(&r->shared->agent)));
    for (int i = 0; i < N; i++) {
        AWAIT(is_gone(atomic_load(&r->shared->pid[i])));
    }
}

/* Would catch: a Ctrl-C at a terminal, or a SIGTERM of a batch system for the whole process group,
 * that ends the agent before the controller has ended the run. */
static void test_agent__leaves_signals_to_the_controller(void **state)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGPIPE, SIGXCPU};
    rig *r = *state;
    start(r);
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        kill(atomic_load(&r->shared->agent), numbers[i]);
    }
    fl_agent_kill(r->agent, &r->workers[1], 1);
    assert_int_equal(WTERMSIG(r->workers[1].wait_status), SIGKILL);
    assert_int_equal(fl_agent_watch(r->agent), N - 1);
}

/* ---- the agent's end ---- */

/* An agent whose controller is the test itself. send_bytes: what its socket keeps of its answers;
 * 0: as much as usual. */
static int start_bare(rig *r, int send_bytes, pid_t *agent)
{
    static fl_agent_child children[N];
    int ends[2];
    memset(children, 0, sizeof children);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends), 0);
    if (send_bytes > 0) {
        assert_int_equal(setsockopt(ends[1], SOL_SOCKET, SO_SNDBUF, &send_bytes, sizeof send_bytes),
                         0);
    }
    fflush(NULL);
    *agent = fork();
    if (*agent == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(ends[0]);
        fl__agent_run(&r->options, ends[1], children);
    }
    close(ends[1]);
    return ends[0];
}

static void send_frame(int socket, fl_agent_type type, int rank, uint32_t incarnation)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    fl_agent_frame frame = {.type = type, .rank = rank, .incarnation = incarnation};
    if (type == FL_AGENT_SPAWN) {
        frame.birth = birth;
    }
    size_t n = fl_agent_wire_put(&frame, bytes);
    assert_int_equal(send(socket, bytes, n, MSG_NOSIGNAL), n);
}

static fl_agent_frame receive(int socket)
{
    unsigned char bytes[FL_AGENT_FRAME_MAX];
    fl_agent_frame frame;
    struct timeval limit = {.tv_sec = WAIT_MS / 1000};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    ssize_t n = recv(socket, bytes, sizeof bytes, 0);
    assert_true(n > 0);
    assert_int_equal(fl_agent_wire_get(bytes, (size_t)n, &frame), FL_OK);
    return frame;
}

static void end_bare(int socket, pid_t agent)
{
    int wait_status = 0;
    send_frame(socket, FL_AGENT_END, 0, 0);
    assert_int_equal(waitpid(agent, &wait_status, 0), agent);
    assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
    close(socket);
}

/* A worker that was killed, and whose end nobody can see: its tracer does not let go of it. It
 * stands for one that is stuck in the kernel. Would catch: an agent that waits for it for ever. */
static void test_agent__leaves_a_worker_behind_that_does_not_end(void **state)
{
    rig *r = *state;
    pid_t agent;
    int wait_status = 0, socket = start_bare(r, 0, &agent);
    send_frame(socket, FL_AGENT_SPAWN, 1, 1);
    AWAIT(atomic_load(&r->shared->n_begun[1]) == 1);
    pid_t worker = atomic_load(&r->shared->pid[1]);
    if (ptrace(PTRACE_SEIZE, worker, NULL, NULL) != 0) {
        kill(agent, SIGKILL);
        print_message("skipped: no right to trace a process: %s\n", strerror(errno));
        skip();
    }
    send_frame(socket, FL_AGENT_END, 0, 0);
    AWAIT(waitpid(agent, &wait_status, WNOHANG) == agent);
    assert_true(WIFEXITED(wait_status) && WEXITSTATUS(wait_status) == 0);
    close(socket);
    AWAIT(is_gone(worker));
}

/* Would catch: an agent that crashes on frames which no controller sends, or obeys them. */
static void test_agent__refuses_frames_that_make_no_sense(void **state)
{
    rig *r = *state;
    pid_t agent;
    int socket = start_bare(r, 0, &agent);
    unsigned char noise[4096];
    memset(noise, 0x5a, sizeof noise);
    static const size_t sizes[] = {1, 15, 16, 64, 65, 4096};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        assert_int_equal(send(socket, noise, sizes[i], 0), sizes[i]);
    }
    send_frame(socket, FL_AGENT_SPAWN, N, 1);   /* no such rank */
    send_frame(socket, FL_AGENT_KILL, 1, 1);    /* was not started */
    send_frame(socket, FL_AGENT_LOOK, 1, 1);    /* nor this */
    send_frame(socket, FL_AGENT_SPAWNED, 1, 1); /* refused: neither process nor error */
    send_frame(socket, FL_AGENT_EXITED, 1, 1);  /* the agent's own */
    send_frame(socket, FL_AGENT_SPAWN, 1, 5);
    fl_agent_frame frame = receive(socket);
    assert_int_equal(frame.type, FL_AGENT_SPAWNED);
    assert_int_equal(frame.rank, 1);
    assert_int_equal(frame.incarnation, 5);
    send_frame(socket, FL_AGENT_SPAWN, 1, 6); /* it lives */
    send_frame(socket, FL_AGENT_KILL, 1, 4);  /* another process of the rank */
    send_frame(socket, FL_AGENT_LOOK, 1, 5);
    assert_int_equal(receive(socket).type, FL_AGENT_LOOKED);
    send_frame(socket, FL_AGENT_KILL, 1, 5);
    frame = receive(socket);
    assert_int_equal(frame.type, FL_AGENT_EXITED);
    assert_int_equal(frame.incarnation, 5);
    end_bare(socket, agent);
    assert_int_equal(atomic_load(&r->shared->n_begun[0]) + atomic_load(&r->shared->n_begun[2]), 0);
}

static void record_and_die(fl_flight *flight)
{
    pid_t pid = fork();
    if (pid == 0) {
        fl_flight_join(flight, 0);
        fl_flight_enter(FL_FLIGHT_FORWARD, -1, 0, 0);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* A rank is started again after its end, with what the request says, and its log goes on. Would
 * catch: an operation that the dead process was in, taken for one of its successor. */
static void test_agent__starts_a_rank_again(void **state)
{
    fl_flight_view view;
    rig *r = *state;
    pid_t agent;
    int socket = start_bare(r, 0, &agent);
    atomic_store(&r->shared->leaves, 1);
    record_and_die(r->flight);
    fl_flight_look(r->flight, 0, 0, &view);
    assert_int_equal(view.depth, 1);
    for (uint32_t incarnation = 1; incarnation <= 3; incarnation++) {
        send_frame(socket, FL_AGENT_SPAWN, 0, incarnation);
        assert_int_equal(receive(socket).type, FL_AGENT_SPAWNED);
        fl_agent_frame frame = receive(socket);
        assert_int_equal(frame.type, FL_AGENT_EXITED);
        assert_int_equal(frame.incarnation, incarnation);
        assert_int_equal(WEXITSTATUS(frame.wait_status), EXIT_CODE);
        fl_flight_look(r->flight, 0, 0, &view);
        assert_int_equal(view.depth, 0);
        birth.step++;
    }
    send_frame(socket, FL_AGENT_SPAWN, 0, 3); /* that one has been */
    end_bare(socket, agent);
    assert_int_equal(atomic_load(&r->shared->n_begun[0]), 3);
    char *log = read_log(r, 0);
    int n = 0;
    for (const char *at = log; (at = strstr(at, "worker 0 at nowhere")) != NULL; at++) {
        char text[48];
        snprintf(text, sizeof text, "worker 0 at nowhere, step %d of 40\n", n++);
        assert_memory_equal(at, text, strlen(text));
    }
    assert_int_equal(n, 3);
    free(log);
}

/* Whether the other end has read all that was sent. */
static bool has_read(int socket)
{
    int n = -1;
    assert_int_equal(ioctl(socket, SIOCOUTQ, &n), 0);
    return n == 0;
}

/* Would catch: an agent that blocks in a send, and no longer reaps or obeys, because its controller
 * does not read. */
static void test_agent__never_waits_for_a_reader(void **state)
{
    enum { LOOKS = 100, SMALLEST = 1 };
    rig *r = *state;
    pid_t agent;
    int socket = start_bare(r, SMALLEST, &agent);
    for (int i = 0; i < N; i++) {
        send_frame(socket, FL_AGENT_SPAWN, i, 1);
    }
    AWAIT(all_begun(r->shared));
    for (int i = 0; i < LOOKS; i++) { /* each is answered before the next one comes */
        send_frame(socket, FL_AGENT_LOOK, i % N, 1);
        AWAIT(has_read(socket));
    }
    send_frame(socket, FL_AGENT_KILL, 0, 1);
    AWAIT(kill(atomic_load(&r->shared->pid[0]), 0) != 0); /* killed, and reaped by the agent */
    int n_looked = 0;
    for (fl_agent_frame frame = receive(socket); frame.type != FL_AGENT_EXITED;
         frame = receive(socket)) {
        n_looked += frame.type == FL_AGENT_LOOKED;
    }
    assert_in_range(n_looked, 1, LOOKS / 2); /* the others were merged: the socket was full */
    end_bare(socket, agent);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_agent__starts_workers_and_reports_their_exits, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_agent__kills_one_worker_alone, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__looks_at_processes, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__tells_an_exit_before_it_reaps, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_agent__tells_all_exits_before_it_reaps_at_its_end,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__ends_all_when_it_is_closed, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__takes_its_workers_with_it, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__may_be_stopped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__ends_even_if_it_is_stopped, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__ends_with_its_controller, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__leaves_signals_to_the_controller, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_agent__leaves_a_worker_behind_that_does_not_end,
                                        set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__refuses_frames_that_make_no_sense, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(test_agent__starts_a_rank_again, set_up, tear_down),
        cmocka_unit_test_setup_teardown(test_agent__never_waits_for_a_reader, set_up, tear_down),
    };
    prctl(PR_SET_CHILD_SUBREAPER, 1); /* adopts what a dead agent or controller leaves */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
