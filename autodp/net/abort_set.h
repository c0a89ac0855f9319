/* The set of objects that another thread may abort, or look at, at any moment: every net that is
 * open or being opened, with the generation that it belongs to.
 *
 * A net joins the set before it connects and leaves it before it closes, so its owners need not
 * register it. The set remembers an abort: it refuses objects that join later for an aborted
 * generation.
 * Threads: any. */
#ifndef FL_AUTODP_NET_ABORT_SET_H
#define FL_AUTODP_NET_ABORT_SET_H

#include "autodp/net/unanswered.h"

#include <frostline/status.h>

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Part of the object that can be aborted; it must not move while it is in the set. */
typedef struct fl_abortable {
    uint32_t generation;
    void *self;
    /* Called with the set locked: it must neither wait nor use the set. */
    void (*abort)(void *self, fl_status why);
    /* The same: fl_net_unanswered_add its connections to *worst. NULL: it has none. */
    void (*look)(void *self, fl_net_unanswered *worst);
    struct fl_abortable *previous, *next;
} fl_abortable;

/* How many aborted generations are remembered: more than can be open at the same time. */
enum { FL_ABORT_SET_MEMORY = 8 };

typedef struct fl_abort_set {
    pthread_mutex_t lock;
    fl_abortable *first;
    fl_status all;      /* why everything was aborted; FL_OK: it was not */
    uint32_t until;     /* the newest generation of those that were aborted together, */
    fl_status up_to_it; /* and why; FL_OK: none were */
    struct {
        uint32_t generation;
        fl_status why; /* FL_OK: unused */
    } aborted[FL_ABORT_SET_MEMORY];
    unsigned n_aborted;
    /* Whoever aborts also decides how long a wait may last: nets that join the set do not apply the
     * deadlines of their callers' waits. Set before the first net joins. */
    bool limits_waits;
} fl_abort_set;

#define FL_ABORT_SET_INIT                                                                          \
    {                                                                                              \
        .lock = PTHREAD_MUTEX_INITIALIZER                                                          \
    }

/* Join the set. If the generation was aborted, this fails with the reason, and *abortable is not in
 * the set. */
fl_status fl_abort_set_add(fl_abort_set *set, fl_abortable *abortable) FL_MUST_CHECK;

/* Leave the set: once it returns, no thread aborts *abortable. An object that is not in the set is
 * ignored. */
void fl_abort_set_remove(fl_abort_set *set, fl_abortable *abortable);

/* Abort the objects of one generation, or of all, now and later. The first reason stays; each
 * generation number is used once. why: not FL_OK. */
void fl_abort_set_abort(fl_abort_set *set, uint32_t generation, fl_status why);
void fl_abort_set_abort_all(fl_abort_set *set, fl_status why);

/* The same for every generation up to `until`: younger ones can still be opened. */
void fl_abort_set_abort_until(fl_abort_set *set, uint32_t until, fl_status why);

/* Of the connections of all objects, the one that has had no answer for the longest time. */
void fl_abort_set_look(fl_abort_set *set, fl_net_unanswered *worst);

/* FL_OK, or why the generation was aborted: for waits that do not use a net. */
fl_status fl_abort_set_check(fl_abort_set *set, uint32_t generation) FL_MUST_CHECK;

#ifdef __cplusplus
}
#endif
#endif
