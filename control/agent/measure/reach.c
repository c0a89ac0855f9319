#include "control/agent/measure/reach.h"

#include "autodp/net/listen.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum {
    SOCKETS = 256,    /* at most at the same time: a limit of 1024 descriptors is usual */
    ATTEMPTS = 4,     /* connections to one host that are being opened, at most */
    ATTEMPT_MS = 250, /* between them: the kernel repeats a lost packet only after a second */
    BACKLOG = 1024,
};

/* ---- to be reached ---- */

bool fl_reach_door_open(fl_reach_door *door, const uint16_t ports[2])
{
    const struct sockaddr_in any = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    struct sockaddr_storage a;
    memset(&a, 0, sizeof a);
    memcpy(&a, &any, sizeof any);
    *door = (fl_reach_door){.fd = fl_net_listen(&a, sizeof any, ports, BACKLOG)};
    if (door->fd >= 0) {
        door->port = ntohs(((const struct sockaddr_in *)&a)->sin_port);
    }
    return door->fd >= 0;
}

void fl_reach_door_turn(const fl_reach_door *door)
{
    int fd = door->fd;
    for (int i = 0; i < BACKLOG && fd >= 0; i++) {
        fd = accept4(door->fd, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
        if (fd >= 0) {
            close(fd);
        }
    }
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

/* ---- to reach others ---- */

fl_reach_shares fl_reach_share(int n_hosts, int64_t timeout_ms)
{
    int fair = n_hosts > 0 ? SOCKETS / n_hosts : ATTEMPTS;
    int n_turns = n_hosts > SOCKETS ? (n_hosts + SOCKETS - 1) / SOCKETS : 1;
    return (fl_reach_shares){.attempts = fair < 1          ? 1
                                         : fair > ATTEMPTS ? ATTEMPTS
                                                           : fair,
                             .at_once = n_hosts < SOCKETS ? n_hosts : SOCKETS,
                             .timeout_ms = timeout_ms / n_turns};
}

/* The host is reached by whichever connection is answered first. None is given up before the time
 * is over: behind a slow link, its packet waits for the data before it. */
typedef struct reach_trial {
    int n, fd[ATTEMPTS]; /* [n] connections that were begun; -1: one that has failed */
    bool begun, reached, over;
    int error;        /* of the last one that failed; 0: nobody answered */
    int64_t until_us; /* for all of them */
    int64_t due_us;   /* the next one begins */
} reach_trial;

struct fl_reach_round {
    fl_reach_order order;
    bool runs;
    fl_reach_shares shares;
    reach_trial of[FL_MAX_WORKERS]; /* [order.n] */
};

static void end_trial(reach_trial *t)
{
    for (int i = 0; i < t->n; i++) {
        if (t->fd[i] >= 0) {
            close(t->fd[i]);
        }
    }
    t->n = 0;
    t->over = true;
}

/* After a failure, the next attempt follows, also after a refusal: it may be that of a firewall,
 * which ends while the other direction is still tried, and then both have to agree. When an agent
 * has ended, its port is refused, too, and the head will know in a moment that its host is lost. */
static void note_outcome(reach_trial *t, int i, bool is_door, int error)
{
    close(t->fd[i]);
    t->fd[i] = -1;
    t->error = error;
    t->reached = t->reached || error == 0 || (error == ECONNREFUSED && !is_door);
}

static void begin_attempt(reach_trial *t, const fl_reach_target *target)
{
    const struct sockaddr_in to = {.sin_family = AF_INET,
                                   .sin_port = htons(target->port),
                                   .sin_addr.s_addr = htonl(target->address)};
    int i = t->n;
    t->due_us = fl_deadline_us(ATTEMPT_MS);
    t->fd[i] = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (t->fd[i] < 0) {
        t->reached = i == 0; /* nothing is known: this host has no sockets */
        return;
    }
    t->n++;
    if (connect(t->fd[i], (const struct sockaddr *)&to, sizeof to) == 0) {
        note_outcome(t, i, target->is_door, 0);
    } else if (errno != EINPROGRESS) {
        note_outcome(t, i, target->is_door, errno);
    }
}

static void look_at(reach_trial *t, int i, bool is_door)
{
    struct pollfd item = {.fd = t->fd[i], .events = POLLOUT};
    int error = 0;
    socklen_t size = sizeof error;
    if (t->fd[i] < 0 || poll(&item, 1, 0) != 1) {
        return;
    }
    if (getsockopt(t->fd[i], SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
        error = errno;
    }
    note_outcome(t, i, is_door, error);
}

/* A place that a connection has left by failing is used again. */
static void drop_failed(reach_trial *t)
{
    int n = 0;
    for (int i = 0; i < t->n; i++) {
        if (t->fd[i] >= 0) {
            t->fd[n++] = t->fd[i];
        }
    }
    t->n = n;
}

static void turn_trial(reach_trial *t, const fl_reach_target *target, const fl_reach_shares *shares,
                       int64_t now_us)
{
    if (!t->begun) {
        t->begun = true;
        t->until_us = now_us + shares->timeout_ms * 1000;
        t->due_us = now_us;
    }
    for (int i = 0; i < t->n; i++) {
        look_at(t, i, target->is_door);
    }
    drop_failed(t);
    if (!t->reached && now_us < t->until_us && now_us >= t->due_us && t->n < shares->attempts) {
        begin_attempt(t, target);
    }
    if (t->reached || now_us >= t->until_us) {
        end_trial(t);
    }
}

static void add_unreached(fl_reach_answer *answer, const fl_reach_round *round, int i)
{
    const reach_trial *t = &round->of[i];
    unsigned port = round->order.target[i].port;
    if (answer->n == 0 && t->error != 0) {
        snprintf(answer->why, sizeof answer->why, "port %u: %.48s", port, strerror(t->error));
    } else if (answer->n == 0) {
        snprintf(answer->why, sizeof answer->why, "port %u: no answer in %.1f s", port,
                 (double)round->shares.timeout_ms * 1e-3);
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
    for (int i = 0; i < round->order.n && n_open < round->shares.at_once; i++) {
        reach_trial *t = &round->of[i];
        if (!t->over) {
            turn_trial(t, &round->order.target[i], &round->shares, now_us);
            n_open += !t->over;
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
    (*round)->shares = fl_reach_share(order->n, order->timeout_ms);
    return FL_OK;
}

void fl_reach_round_end(fl_reach_round **round)
{
    fl_reach_round *ended = *round;
    *round = NULL;
    for (int i = 0; ended != NULL && i < FL_MAX_WORKERS; i++) {
        end_trial(&ended->of[i]);
    }
    fl_free(ended);
}
