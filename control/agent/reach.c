#include "control/agent/reach.h"

#include "device/alloc.h"
#include "device/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    BACKLOG = 1024,
    ACCEPTS = 64,     /* in a turn */
    AT_ONCE = 64,     /* connections that are being opened */
    ATTEMPT_MS = 300, /* the kernel repeats a lost packet only after a second */
};

/* ---- to be reached ---- */

bool fl_reach_door_open(fl_reach_door *door)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t size = sizeof a;
    *door = (fl_reach_door){.fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)};
    if (door->fd < 0 || bind(door->fd, (struct sockaddr *)&a, size) != 0 ||
        listen(door->fd, BACKLOG) != 0 ||
        getsockname(door->fd, (struct sockaddr *)&a, &size) != 0) {
        fl_reach_door_close(door);
        return false;
    }
    door->port = ntohs(a.sin_port);
    return true;
}

void fl_reach_door_close(fl_reach_door *door)
{
    int error = errno;
    if (door->fd >= 0) {
        close(door->fd);
    }
    *door = (fl_reach_door){.fd = -1};
    errno = error;
}

void fl_reach_door_serve(const fl_reach_door *door)
{
    for (int i = 0; i < ACCEPTS && door->fd >= 0; i++) {
        int fd = accept4(door->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd < 0) {
            return;
        }
        close(fd);
    }
}

/* ---- to reach others ---- */

typedef struct attempt {
    int fd; /* -1: none is being made */
    bool begun, reached, over;
    int error;        /* of the last one that failed; 0: nobody answered */
    int64_t until_us; /* for all of them */
    int64_t due_us;   /* this one is given up, or the next one begins */
} attempt;

struct fl_reach_round {
    fl_reach_order order;
    bool runs;
    attempt of[FL_MAX_WORKERS]; /* [order.n] */
};

static void close_attempt(attempt *a)
{
    if (a->fd >= 0) {
        close(a->fd);
    }
    a->fd = -1;
}

/* Whoever refuses a connection was reached. After another failure, the next attempt follows. */
static void note_outcome(attempt *a, int error)
{
    close_attempt(a);
    a->reached = a->over = error == 0 || error == ECONNREFUSED;
    a->error = error;
}

static void begin_attempt(attempt *a, const fl_reach_target *target)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(target->port),
                                   .sin_addr.s_addr = htonl(target->address)};
    a->due_us = fl_deadline_us(ATTEMPT_MS);
    a->error = 0;
    a->fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (a->fd < 0) {
        a->over = a->reached = true; /* nothing is known: this host has no sockets */
    } else if (connect(a->fd, (const struct sockaddr *)&to, sizeof to) == 0) {
        note_outcome(a, 0);
    } else if (errno != EINPROGRESS) {
        note_outcome(a, errno);
    }
}

static void look_at(attempt *a)
{
    struct pollfd item = {.fd = a->fd, .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    if (a->fd < 0 || poll(&item, 1, 0) != 1) {
        return;
    }
    if (getsockopt(a->fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
    }
    note_outcome(a, error);
}

static void turn_attempt(attempt *a, const fl_reach_target *target, int64_t timeout_ms,
                         int64_t now_us)
{
    if (!a->begun) {
        a->begun = true;
        a->until_us = now_us + timeout_ms * 1000;
        begin_attempt(a, target);
        return;
    }
    look_at(a);
    if (!a->over && now_us >= a->until_us) {
        close_attempt(a);
        a->over = true;
    } else if (!a->over && now_us >= a->due_us) {
        close_attempt(a);
        begin_attempt(a, target);
    }
}

static void add_unreached(fl_reach_answer *answer, const fl_reach_round *round, int i)
{
    const attempt *a = &round->of[i];
    if (answer->n == 0 && a->error != 0) {
        snprintf(answer->why, sizeof answer->why, "%s", strerror(a->error));
    } else if (answer->n == 0) {
        snprintf(answer->why, sizeof answer->why, "no answer in %.1f s",
                 (double)round->order.timeout_ms * 1e-3);
    }
    if (answer->n < FL_REACH_ANSWER_MAX) {
        answer->host[answer->n++] = round->order.target[i].host;
    }
}

bool fl_reach_round_turn(fl_reach_round *round, fl_reach_answer *answer)
{
    int n_open = 0;
    int64_t now_us = fl_now_us();
    if (!fl_reach_round_runs(round)) {
        return false;
    }
    for (int i = 0; i < round->order.n && n_open < AT_ONCE; i++) {
        attempt *a = &round->of[i];
        if (!a->over) {
            turn_attempt(a, &round->order.target[i], round->order.timeout_ms, now_us);
            n_open += !a->over;
        }
    }
    if (n_open > 0) {
        return false;
    }
    *answer = (fl_reach_answer){.number = round->order.number};
    for (int i = 0; i < round->order.n; i++) {
        if (!round->of[i].reached) {
            add_unreached(answer, round, i);
        }
    }
    round->runs = false;
    return true;
}

bool fl_reach_round_runs(const fl_reach_round *round)
{
    return round != NULL && round->runs;
}

fl_status fl_reach_round_begin(fl_reach_round **round, const fl_reach_order *order)
{
    fl_reach_round_end(round);
    FL_TRY(fl_alloc(sizeof **round, (void **)round));
    (*round)->order = *order;
    (*round)->runs = true;
    for (int i = 0; i < FL_MAX_WORKERS; i++) {
        (*round)->of[i].fd = -1;
    }
    return FL_OK;
}

void fl_reach_round_end(fl_reach_round **round)
{
    fl_reach_round *ended = *round;
    *round = NULL;
    for (int i = 0; ended != NULL && i < FL_MAX_WORKERS; i++) {
        close_attempt(&ended->of[i]);
    }
    fl_free(ended);
}
