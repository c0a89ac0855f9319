/* Communicators of the stand-in for NCCL that come from another one. All of its ranks, or those
 * that are not excluded, post what they want on its board; the first of each color makes the
 * child's. */
#include "tests/nccl/comm.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The rank among those of its color, and the first and the number of them. */
static int place_in_color(struct ncclComm *c, const board_split *s, int *first, int *n)
{
    int before = 0;
    *first = -1;
    *n = 0;
    for (int rank = 0; rank < c->end.n_ranks; rank++) {
        if (s->rank[rank].color == c->color) {
            int key = s->rank[rank].key;
            before += key < c->key || (key == c->key && rank < c->end.rank);
            *first = *first < 0 ? rank : *first;
            ++*n;
        }
    }
    return before;
}

static board_split *split_of(const struct ncclComm *c)
{
    return c->state == SHRINKING ? &c->end.b->shrink : &c->end.b->split[c->n_splits % BOARD_SPLITS];
}

/* Once all ranks have come: the first of each color makes the board of the child. */
static bool make_child(struct ncclComm *c)
{
    board_split *s = split_of(c);
    unsigned number = c->state == SHRINKING ? 1 : c->n_splits;
    int first, n, rank = place_in_color(c, s, &first, &n);
    int own_fd = -1;
    if (c->color == FL_NCCL_NO_COLOR) {
        *c->child = NULL;
        return true;
    }
    if (first == c->end.rank) {
        if (!board_create(&s->rank[first].place)) {
            abort();
        }
        own_fd = (int)s->rank[first].place.fd;
        atomic_store(&s->rank[first].made, number);
    }
    if (atomic_load(&s->rank[first].made) != number) {
        return false;
    }
    board *b = board_open(&s->rank[first].place);
    *c->child = comm_create(b, own_fd, n, rank);
    return true;
}

static bool all_have_split(const struct ncclComm *c)
{
    const board_split *s = split_of(c);
    unsigned number = c->state == SHRINKING ? 1 : c->n_splits;
    for (int rank = 0; rank < c->end.n_ranks; rank++) {
        bool counts = c->state == SPLITTING || !c->excluded[rank];
        if (counts && atomic_load(&s->rank[rank].posted) != number) {
            return false;
        }
    }
    return true;
}

static void post_split(struct ncclComm *c, unsigned number, int color, int key,
                       struct ncclComm **child)
{
    board_split *s = split_of(c);
    c->color = s->rank[c->end.rank].color = color;
    c->key = s->rank[c->end.rank].key = key;
    c->child = child;
    atomic_store(&s->rank[c->end.rank].posted, number);
}

EXPORT fl_nccl_result ncclCommSplit(struct ncclComm *c, int color, int key, struct ncclComm **child,
                                    fl_nccl_config *config)
{
    fl_nccl_result result = FL_NCCL_IN_PROGRESS;
    fault f = fault_of("CommSplit");
    (void)config;
    pthread_mutex_lock(&comm_lock);
    if (f.kind == FAULT_FAIL) {
        result = comm_refuse((fl_nccl_result)f.value, "it failed on request");
    } else if (c->state != READY || comm_has_ops(c)) {
        result = comm_refuse(FL_NCCL_INVALID_USAGE, "something of the parent is outstanding");
    } else {
        c->n_splits++;
        comm_begin(c, SPLITTING, f);
        post_split(c, c->n_splits, color, key, child);
    }
    pthread_mutex_unlock(&comm_lock);
    return result;
}

bool comm_finish_split(struct ncclComm *c)
{
    return all_have_split(c) && make_child(c);
}

#ifndef STANDIN_WITHOUT_SHRINK
EXPORT fl_nccl_result ncclCommShrink(struct ncclComm *c, int *excluded, int n_excluded,
                                     struct ncclComm **child, fl_nccl_config *config, int flags)
{
    fl_nccl_result result = FL_NCCL_IN_PROGRESS;
    fault f = fault_of("CommShrink");
    (void)config;
    pthread_mutex_lock(&comm_lock);
    memset(c->excluded, 0, sizeof c->excluded);
    for (int i = 0; i < n_excluded; i++) {
        if (excluded[i] < 0 || excluded[i] >= c->end.n_ranks || excluded[i] == c->end.rank) {
            result = comm_refuse(FL_NCCL_INVALID_ARGUMENT, "a rank that cannot be excluded");
        } else {
            c->excluded[excluded[i]] = true;
        }
    }
    if (f.kind == FAULT_FAIL) {
        result = comm_refuse((fl_nccl_result)f.value, "it failed on request");
    } else if (n_excluded < 1) {
        result = comm_refuse(FL_NCCL_INVALID_ARGUMENT, "no rank is excluded");
    } else if (c->state != READY || (flags == FL_NCCL_SHRINK_DEFAULT && comm_has_ops(c))) {
        result = comm_refuse(FL_NCCL_INVALID_USAGE, "something of the parent is outstanding");
    } else if (result == FL_NCCL_IN_PROGRESS) {
        int first = 0; /* other ranks may shrink the same communicator to another one */
        while (c->excluded[first]) {
            first++;
        }
        comm_begin(c, SHRINKING, f);
        post_split(c, 1, 1 + first, c->end.rank, child);
    }
    pthread_mutex_unlock(&comm_lock);
    return result;
}
#endif
