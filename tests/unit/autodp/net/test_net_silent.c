/* Opening a net with a member that is silent: the kernel of its host takes the connection, and
 * nobody answers, as of a process that is stopped; or with one that resets the connection. Would
 * catch: an opening that a stop of the run does not end, one without a bound, and a message that
 * does not name the member. */
#include "autodp/net/open/net_open.h"
#include "autodp/tls/tls.h"
#include "device/system/alloc.h"

#include <arpa/inet.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    LONG_MS = 600000, /* longer than this test may take */
    SHORT_MS = 300,
    POLL_MS = 500,
    PORT_AT = 2, /* in what a member publishes, after the family, */
    ADDRESS_AT = 4,
    PUBLISHED_MAX = 512,
};

typedef struct silent_store {
    unsigned char published[PUBLISHED_MAX]; /* [n] by member 0 */
    size_t n;
    struct sockaddr_in silent; /* where member 1 listens */
    int listener, asked;       /* asked: a pipe; a byte comes when member 0 knows that */
    fl_abort_set *set;
} silent_store;

static fl_status take_published(void *self, const char *key, int64_t deadline_us, const void *data,
                                size_t size_bytes)
{
    silent_store *s = self;
    (void)deadline_us;
    if (strcmp(key, "silent/0") == 0) {
        assert_true(size_bytes <= sizeof s->published);
        memcpy(s->published, data, size_bytes);
        s->n = size_bytes;
    }
    return FL_OK;
}

/* Member 1 is where nobody answers. */
static fl_status give_silent(void *self, const char *key, int64_t deadline_us, void **data,
                             size_t *size_bytes)
{
    silent_store *s = self;
    char byte = 0;
    (void)deadline_us;
    assert_string_equal(key, "silent/1");
    FL_TRY(fl_alloc(s->n, data));
    unsigned char *bytes = *data;
    memcpy(bytes, s->published, s->n);
    memcpy(bytes + PORT_AT, &s->silent.sin_port, sizeof s->silent.sin_port);
    memcpy(bytes + ADDRESS_AT, &s->silent.sin_addr, sizeof s->silent.sin_addr);
    *size_bytes = s->n;
    assert_int_equal(write(s->asked, &byte, 1), 1);
    return FL_OK;
}

typedef struct stopper {
    silent_store *store;
    int asked;
} stopper;

/* As a worker that learns of Ctrl-C while it connects. */
static void *stop_opening(void *context)
{
    stopper *s = context;
    char byte;
    struct pollfd item = {.fd = s->store->listener, .events = POLLIN};
    assert_int_equal(read(s->asked, &byte, 1), 1);
    (void)poll(&item, 1, POLL_MS); /* Gloo may leave it to the other member to connect */
    fl_abort_set_abort_all(s->store->set, FL_ESTOPPED);
    return NULL;
}

static void listen_silently(silent_store *s)
{
    socklen_t n = sizeof s->silent;
    s->silent =
        (struct sockaddr_in){.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    s->listener = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(bind(s->listener, (struct sockaddr *)&s->silent, n), 0);
    assert_int_equal(listen(s->listener, 4), 0);
    assert_int_equal(getsockname(s->listener, (struct sockaddr *)&s->silent, &n), 0);
}

/* Open it, and stop that if `stops`; the message is then in fl_errmsg(). */
static fl_status open_with_silent(bool tls, bool stops, int64_t open_timeout_ms)
{
    fl_abort_set set = FL_ABORT_SET_INIT;
    silent_store store = {.set = &set};
    fl_net_transport transport;
    fl_net *net = NULL;
    pthread_t thread;
    int asked[2];
    assert_int_equal(pipe(asked), 0);
    listen_silently(&store);
    store.asked = asked[1];
    stopper stop = {&store, asked[0]};
    const fl_kv kv = {&store, take_published, give_silent};
    assert_int_equal(fl_tls_transport("the secret of this test, which has a length", &transport),
                     FL_OK);
    if (stops) {
        assert_int_equal(pthread_create(&thread, NULL, stop_opening, &stop), 0);
    }
    const fl_net_options options = {.rank = 0,
                                    .size = 2,
                                    .name = "silent",
                                    .kv = &kv,
                                    .host = "127.0.0.1",
                                    .transport = tls ? &transport : NULL,
                                    .abort_set = &set,
                                    .generation = 1,
                                    .open_timeout_ms = open_timeout_ms,
                                    .wait_timeout_ms = LONG_MS};
    fl_status status = fl_net_open(&options, &net);
    assert_null(net);
    if (stops) {
        pthread_join(thread, NULL);
    }
    close(store.listener);
    close(asked[0]);
    close(asked[1]);
    return status;
}

static void test_net_silent__a_stop_ends_the_opening(void **state)
{
    (void)state;
    for (int tls = 0; tls < 2; tls++) {
        assert_int_equal(open_with_silent(tls, true, LONG_MS), FL_ESTOPPED);
    }
}

static void test_net_silent__the_opening_has_a_bound_and_names_the_member(void **state)
{
    (void)state;
    for (int tls = 0; tls < 2; tls++) {
        fl_status status = open_with_silent(tls, false, SHORT_MS);
        if (status != FL_EDEADLINE || strstr(fl_errmsg(), "member 1") == NULL) {
            fail_msg("tls %d: status %d: %s", tls, (int)status, fl_errmsg());
        }
    }
}

/* ---- a connection that is reset before it is accepted ---- */

/* What member 0, a process of its own, shares with this one. */
typedef struct reset_store {
    unsigned char published[PUBLISHED_MAX];
    size_t n;
} reset_store;

static fl_status share_published(void *self, const char *key, int64_t deadline_us, const void *data,
                                 size_t size_bytes)
{
    reset_store *s = self;
    (void)key;
    (void)deadline_us;
    memcpy(s->published, data, size_bytes);
    s->n = size_bytes;
    return FL_OK;
}

/* Member 0 listens by now, and stops. Gloo has the member with the lower address listen. */
static fl_status give_higher(void *self, const char *key, int64_t deadline_us, void **data,
                             size_t *size_bytes)
{
    const reset_store *s = self;
    (void)key;
    (void)deadline_us;
    raise(SIGSTOP);
    FL_TRY(fl_alloc(s->n, data));
    memcpy(*data, s->published, s->n);
    ((unsigned char *)*data)[ADDRESS_AT + 3]++;
    *size_bytes = s->n;
    return FL_OK;
}

static _Noreturn void open_as_member_0(reset_store *store)
{
    fl_net *net = NULL;
    const fl_kv kv = {store, share_published, give_higher};
    const fl_net_options options = {.rank = 0,
                                    .size = 2,
                                    .name = "reset",
                                    .kv = &kv,
                                    .host = "127.0.0.1",
                                    .generation = 1,
                                    .open_timeout_ms = LONG_MS,
                                    .wait_timeout_ms = LONG_MS};
    fl_status status = fl_net_open(&options, &net);
    if (status != FL_EPEER) {
        fprintf(stderr, "status %d: %s\n", (int)status, fl_errmsg());
    }
    _exit(status == FL_EPEER ? 0 : 1);
}

static void reset_a_connection(const reset_store *s)
{
    const struct linger at_once = {.l_onoff = 1};
    struct sockaddr_in to = {.sin_family = AF_INET};
    memcpy(&to.sin_port, s->published + PORT_AT, sizeof to.sin_port);
    memcpy(&to.sin_addr, s->published + ADDRESS_AT, sizeof to.sin_addr);
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&to, sizeof to), 0);
    assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once), 0);
    close(fd);
}

/* Would catch: a worker that ends (SIGABRT) because another one died, or a stranger hung up, in the
 * moment after it had connected. */
static void test_net_silent__a_reset_connection_ends_the_opening_alone(void **state)
{
    (void)state;
    int status = 0;
    reset_store *store =
        mmap(NULL, sizeof *store, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(store != MAP_FAILED);
    fflush(NULL);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        open_as_member_0(store);
    }
    assert_int_equal(waitpid(pid, &status, WUNTRACED), pid);
    assert_true(WIFSTOPPED(status));
    reset_a_connection(store);
    assert_int_equal(kill(pid, SIGCONT), 0);
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    munmap(store, sizeof *store);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_net_silent__a_stop_ends_the_opening),
        cmocka_unit_test(test_net_silent__the_opening_has_a_bound_and_names_the_member),
        cmocka_unit_test(test_net_silent__a_reset_connection_ends_the_opening_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
