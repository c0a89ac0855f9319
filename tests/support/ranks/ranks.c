#include "support/ranks/ranks.h"

#include "autodp/net/store/store.h"
#include "device/system/clock.h"
#include "support/folder.h"

#include <dirent.h>
#include <errno.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <zmq.h>

enum { POLL_MS = 5, IDENTITY_MAX = 255 };

typedef struct family {
    int size;
    pid_t pids[RANKS_MAX];
    int status[RANKS_MAX];
    bool ended[RANKS_MAX], stopped[RANKS_MAX];
    int go[2]; /* a pipe: its closing lets the ranks begin */
    char directory[FOLDER_SIZE], endpoint[96];
    void *zmq, *router;
    fl_store *store;
} family;

static int this_rank = -1;

_Noreturn void rank_fail(const char *file, int line, const char *what, const char *detail)
{
    fprintf(stderr, "rank %d: %s:%d: %s%s%s\n", this_rank, file, line, what,
            *detail == 0 ? "" : ": ", detail);
    fflush(stderr);
    _exit(1);
}

static int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    int n = 0;
    while (directory != NULL && readdir(directory) != NULL) {
        n++;
    }
    if (directory != NULL) {
        closedir(directory);
    }
    return n;
}

int count_descriptors(void)
{
    return count_entries("/proc/self/fd") - 3; /* ".", ".." and the directory's own */
}

int count_threads(void)
{
    return count_entries("/proc/self/task") - 2;
}

bool threads_fall_to(int n)
{
    int64_t until_us = fl_deadline_us(10000);
    while (count_threads() > n) {
        if (fl_left_ms(until_us) == 0) {
            return false;
        }
        sched_yield();
    }
    return true;
}

static _Noreturn void be_rank(const family *f, int rank, rank_body *body, void *context)
{
    this_rank = rank;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char byte;
    close(f->go[1]);
    (void)!read(f->go[0], &byte, 1);
    close(f->go[0]);
    rank_env env = {.rank = rank,
                    .size = f->size,
                    .zmq_context = zmq_ctx_new(),
                    .endpoint = f->endpoint,
                    .context = context};
    fl_store_client *client = NULL;
    RANK_OK(fl_store_connect(env.zmq_context, f->endpoint, NULL, &client));
    fl_kv kv = fl_store_kv(client);
    env.kv = &kv;
    body(&env);
    fl_store_disconnect(&client);
    zmq_ctx_term(env.zmq_context);
    exit(0);
}

static void serve_reply(void *router, const void *to, size_t to_bytes, const void *message,
                        size_t size_bytes)
{
    zmq_send(router, to, to_bytes, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(router, "store", 5, ZMQ_SNDMORE | ZMQ_DONTWAIT);
    zmq_send(router, message, size_bytes, ZMQ_DONTWAIT);
}

static void serve_store(family *f)
{
    zmq_pollitem_t item = {.socket = f->router, .events = ZMQ_POLLIN};
    zmq_poll(&item, 1, POLL_MS);
    unsigned char identity[IDENTITY_MAX];
    int n;
    while ((n = zmq_recv(f->router, identity, sizeof identity, ZMQ_DONTWAIT)) >= 0) {
        char word[8];
        zmq_recv(f->router, word, sizeof word, 0);
        zmq_msg_t request;
        zmq_msg_init(&request);
        zmq_msg_recv(&request, f->router, 0);
        fl_store_handle(f->store, identity, (size_t)n, zmq_msg_data(&request),
                        zmq_msg_size(&request), serve_reply, f->router);
        zmq_msg_close(&request);
    }
}

static void open_store(family *f)
{
    f->zmq = zmq_ctx_new();
    f->router = zmq_socket(f->zmq, ZMQ_ROUTER);
    int zero = 0;
    zmq_setsockopt(f->router, ZMQ_LINGER, &zero, sizeof zero);
    if (zmq_bind(f->router, f->endpoint) != 0 || fl_store_create(&f->store) != FL_OK) {
        fprintf(stderr, "ranks: cannot serve the store at %s\n", f->endpoint);
        abort();
    }
}

static void close_store(family *f)
{
    zmq_close(f->router);
    zmq_ctx_term(f->zmq);
    fl_store_destroy(&f->store);
    unlink(f->endpoint + strlen("ipc://"));
    rmdir(f->directory);
}

/* Returns true when every rank has ended, or stands still where it should. */
static bool reap(family *f, const rank_end *ends)
{
    bool all = true;
    for (int i = 0; i < f->size; i++) {
        int status;
        if (!f->ended[i] && waitpid(f->pids[i], &status, WNOHANG | WUNTRACED) == f->pids[i]) {
            if (WIFSTOPPED(status)) {
                f->stopped[i] = true;
            } else {
                f->ended[i] = true;
                f->status[i] = status;
            }
        }
        bool still = f->stopped[i] && ends != NULL && ends[i] == RANK_STOPPED;
        all = all && (f->ended[i] || still);
    }
    return all;
}

static bool is_right(const family *f, int i, rank_end end)
{
    switch (end) {
    case RANK_ENDS:
        return f->ended[i] && WIFEXITED(f->status[i]) && WEXITSTATUS(f->status[i]) == 0;
    case RANK_KILLED:
        return f->ended[i] && WIFSIGNALED(f->status[i]) && WTERMSIG(f->status[i]) == SIGKILL;
    case RANK_STOPPED:
        return !f->ended[i] && f->stopped[i];
    }
    return false;
}

static void describe(const family *f, int i)
{
    if (!f->ended[i]) {
        fprintf(stderr, "rank %d: %s\n", i, f->stopped[i] ? "is stopped" : "is still running");
    } else if (WIFSIGNALED(f->status[i])) {
        fprintf(stderr, "rank %d: died of signal %d\n", i, WTERMSIG(f->status[i]));
    } else {
        fprintf(stderr, "rank %d: exit code %d\n", i, WEXITSTATUS(f->status[i]));
    }
}

int ranks_run_ending(int size, rank_body *body, void *context, const rank_end *ends,
                     int64_t timeout_ms)
{
    family f = {.size = size};
    if (size > RANKS_MAX || pipe(f.go) != 0) {
        perror("ranks");
        return size;
    }
    make_folder(f.directory);
    snprintf(f.endpoint, sizeof f.endpoint, "ipc://%s/store", f.directory);
    fflush(NULL);
    for (int i = 0; i < size; i++) {
        f.pids[i] = fork();
        if (f.pids[i] == 0) {
            be_rank(&f, i, body, context);
        }
    }
    open_store(&f);
    close(f.go[0]);
    close(f.go[1]);
    int64_t deadline_us = fl_deadline_us(timeout_ms);
    while (!reap(&f, ends) && fl_now_us() < deadline_us) {
        serve_store(&f);
    }
    int n_wrong = 0;
    for (int i = 0; i < size; i++) {
        if (!is_right(&f, i, ends == NULL ? RANK_ENDS : ends[i])) {
            describe(&f, i);
            n_wrong++;
        }
    }
    for (int i = 0; i < size; i++) {
        if (!f.ended[i]) {
            kill(f.pids[i], SIGKILL);
            waitpid(f.pids[i], NULL, 0);
        }
    }
    close_store(&f);
    return n_wrong;
}

int ranks_run(int size, rank_body *body, void *context, int64_t timeout_ms)
{
    return ranks_run_ending(size, body, context, NULL, timeout_ms);
}
