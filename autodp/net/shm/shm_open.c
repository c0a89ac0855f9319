/* How members find the board of a net through shared memory, how they notice each other's end, and
 * how they leave. */
#include "autodp/net/shm/shm_net.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <unistd.h>

/* Between two looks whether the opening is to end. */
enum { SLICE_MS = 50, OPS_AT_FIRST = 250 };

/* ---- members that end ---- */

/* Have the kernel report the end of this member's process. Where it cannot, the process is asked
 * for by its id, which tells its end only once its parent has taken note of it. */
static void watch_process(fl_shm_net *net, int peer)
{
    fl_shm_peer *p = &net->peers[peer];
    struct epoll_event event = {.events = EPOLLIN, .data.u32 = (uint32_t)peer};
    p->is_watched = true;
    p->pid_fd = pidfd_open((pid_t)fl_shm_board_pid(&net->board, peer), 0);
    if (p->pid_fd >= 0 && epoll_ctl(net->ends, EPOLL_CTL_ADD, p->pid_fd, &event) != 0) {
        close(p->pid_fd);
        p->pid_fd = -1;
    }
    p->has_ended = p->pid_fd < 0 && errno == ESRCH;
}

static void note_ended(fl_shm_net *net)
{
    struct epoll_event ended[16];
    int n = epoll_wait(net->ends, ended, sizeof ended / sizeof *ended, 0);
    for (int i = 0; i < n; i++) {
        fl_shm_peer *p = &net->peers[ended[i].data.u32];
        p->has_ended = true;
        close(p->pid_fd); /* reported once */
        p->pid_fd = -1;
    }
    for (int peer = 0; peer < net->base.size; peer++) {
        fl_shm_peer *p = &net->peers[peer];
        if (p->is_watched && !p->has_ended && p->pid_fd < 0) {
            p->has_ended =
                kill((pid_t)fl_shm_board_pid(&net->board, peer), 0) != 0 && errno == ESRCH;
        }
    }
}

static void look_at(fl_shm_net *net, int peer)
{
    fl_shm_peer *p = &net->peers[peer];
    char reason[96];
    bool ended = p->has_ended; /* looked at before its presence, which it sets before it ends */
    fl_shm_presence presence = fl_shm_board_presence(&net->board, peer);
    if (presence == FL_SHM_LEFT) {
        fl__shm_progress(net); /* what it sent before */
        p->left = true;
    } else if (presence == FL_SHM_BROKEN && !net->is_open) {
        /* All members end an opening for the reason of the first one. */
        snprintf(reason, sizeof reason, "member %d has given up", peer);
        fl_status why = fl_shm_board_why(&net->board, peer);
        fl__shm_break(net, fl_status_is_regroup(why) ? why : FL_EPEER, reason);
    } else if (presence == FL_SHM_BROKEN || ended) {
        snprintf(reason, sizeof reason, "member %d was lost: %s", peer,
                 ended ? "its process has ended" : "it could not go on");
        fl__shm_lose(net, peer, reason);
    }
}

void fl__shm_look(fl_shm_net *net, int64_t now_us)
{
    net->looked_us = now_us;
    if (net->board.memory == NULL) {
        return;
    }
    note_ended(net);
    for (int peer = 0; peer < net->base.size; peer++) {
        const fl_shm_peer *p = &net->peers[peer];
        if (peer != net->base.rank && !p->left && !p->lost &&
            fl_shm_board_presence(&net->board, peer) != FL_SHM_ABSENT) {
            look_at(net, peer);
        }
    }
}

/* ---- opening ---- */

/* FL_OK while the opening may go on. */
static fl_status may_go_on(fl_shm_net *net, int64_t deadline_us, const char *what)
{
    fl_status state = (fl_status)atomic_load(&net->state);
    if (state != FL_OK) {
        return fl_fail(state, "%s: %s", what, net->reason);
    }
    return fl_now_us() >= deadline_us ? fl_fail(FL_EDEADLINE, "%s", what) : FL_OK;
}

static void name_key(const fl_shm_net *net, char *key, size_t key_bytes)
{
    snprintf(key, key_bytes, "%s/board", net->base.name);
}

/* Name the board in the store. A store that serves many members may need longer than one call. */
static fl_status publish(fl_shm_net *net, const fl_kv *kv, const fl_shm_board_key *board,
                         int64_t deadline_us)
{
    char key[96];
    name_key(net, key, sizeof key);
    for (;;) {
        fl_status status = kv->set(kv->self, key, fl_deadline_us(SLICE_MS), board, sizeof *board);
        if (status != FL_EDEADLINE) {
            return status;
        }
        FL_TRY(may_go_on(net, deadline_us, "the store did not take the name of the board"));
    }
}

static fl_status look_up(fl_shm_net *net, const fl_kv *kv, int64_t deadline_us,
                         fl_shm_board_key *board)
{
    char key[96];
    name_key(net, key, sizeof key);
    for (;;) {
        void *data = NULL;
        size_t size_bytes = 0;
        fl_status status = kv->get(kv->self, key, fl_deadline_us(SLICE_MS), &data, &size_bytes);
        if (status == FL_OK && size_bytes == sizeof *board) {
            memcpy(board, data, sizeof *board);
        } else if (status == FL_OK) {
            status = fl_fail(FL_EFORMAT, "the name of the board has %zu bytes, expected %zu",
                             size_bytes, sizeof *board);
        }
        fl_free(data);
        if (status != FL_EDEADLINE) {
            return status;
        }
        FL_TRY(may_go_on(net, deadline_us, "member 0 did not arrive"));
    }
}

/* Another thread may abort the net. */
static void keep_board(fl_shm_net *net, const fl_shm_board *board)
{
    pthread_mutex_lock(&net->mutex);
    net->board = *board;
    pthread_mutex_unlock(&net->mutex);
}

static fl_status make_board(fl_shm_net *net, const fl_net_options *o, int64_t deadline_us)
{
    fl_shm_board_key key;
    fl_shm_board board = {0};
    fl_status made = fl_shm_board_create(&board, o->size, &key);
    if (made != FL_OK && made != FL_ENOTSUP) {
        return made;
    }
    keep_board(net, &board);
    FL_TRY(publish(net, o->kv, &key, deadline_us));
    return made;
}

static fl_status find_board(fl_shm_net *net, const fl_net_options *o, int64_t deadline_us)
{
    fl_shm_board_key key;
    fl_shm_board board = {.rank = o->rank};
    FL_TRY(look_up(net, o->kv, deadline_us, &key));
    FL_TRY(fl_shm_board_join(&board, o->size, &key));
    keep_board(net, &board);
    return FL_OK;
}

static void watch_arrived(fl_shm_net *net)
{
    for (int peer = 0; peer < net->base.size; peer++) {
        if (peer != net->base.rank && !net->peers[peer].is_watched &&
            fl_shm_board_presence(&net->board, peer) != FL_SHM_ABSENT) {
            watch_process(net, peer);
        }
    }
}

/* Wait until all members have mapped the board, as long as those that have are alive. */
static fl_status await_all(fl_shm_net *net, int64_t deadline_us)
{
    for (;;) {
        unsigned seen = fl_shm_board_bell(&net->board);
        bool all = fl_shm_board_n_arrived(&net->board) == net->base.size;
        pthread_mutex_lock(&net->mutex);
        watch_arrived(net);
        fl__shm_look(net, fl_now_us());
        pthread_mutex_unlock(&net->mutex);
        FL_TRY(may_go_on(net, all ? INT64_MAX : deadline_us, "a member did not arrive"));
        if (all) {
            return FL_OK;
        }
        fl_shm_board_sleep(&net->board, seen, SLICE_MS * 1000);
    }
}

static fl_status open_board(fl_shm_net *net, const fl_net_options *o)
{
    int64_t deadline_us = fl_deadline_us(o->open_timeout_ms);
    net->ends = epoll_create1(EPOLL_CLOEXEC);
    if (net->ends < 0) {
        return fl_fail(FL_EIO, "epoll: %s", strerror(errno));
    }
    FL_TRY(o->rank == 0 ? make_board(net, o, deadline_us) : find_board(net, o, deadline_us));
    fl_shm_board_arrive(&net->board);
    return await_all(net, deadline_us);
}

fl_status fl__shm_open(const fl_net_options *o, fl_net **out)
{
    fl_shm_net *net = NULL;
    FL_TRY(fl_alloc(sizeof *net, (void **)&net));
    pthread_mutex_init(&net->mutex, NULL);
    net->ends = -1;
    fl_status status = fl_alloc_array((size_t)o->size, sizeof *net->peers, (void **)&net->peers);
    for (int peer = 0; status == FL_OK && peer < o->size; peer++) {
        net->peers[peer].pid_fd = -1;
    }
    status = status == FL_OK ? fl__net_pool_reserve(&net->ops, OPS_AT_FIRST) : status;
    status = status == FL_OK ? fl__net_begin(&net->base, &fl__shm_net_ops, o) : status;
    status = status == FL_OK && o->size > 1 ? open_board(net, o) : status;
    if (status != FL_OK) {
        fl__net_leave_abort_set(&net->base);
        atomic_store(&net->state, (int)status);
        fl__shm_close(&net->base);
        return status;
    }
    net->is_open = true;
    *out = &net->base;
    return FL_OK;
}

/* ---- leaving ---- */

void fl__shm_close(fl_net *base)
{
    fl_shm_net *net = fl__shm_of(base);
    if (net->board.memory != NULL) {
        fl_status why = (fl_status)atomic_load(&net->state);
        fl_shm_board_set(&net->board, why == FL_OK ? FL_SHM_LEFT : FL_SHM_BROKEN, why);
    }
    for (int peer = 0; net->peers != NULL && peer < base->size; peer++) {
        if (net->peers[peer].pid_fd >= 0) {
            close(net->peers[peer].pid_fd);
        }
    }
    if (net->ends >= 0) {
        close(net->ends);
    }
    fl_shm_board_close(&net->board);
    pthread_mutex_destroy(&net->mutex);
    fl__net_pool_free(&net->ops);
    fl_free(net->peers);
    fl_free(net);
}
