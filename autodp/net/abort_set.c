#include "autodp/net/abort_set.h"

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>

/* Why the generation was aborted. The set is locked. */
static fl_status find_reason(const fl_abort_set *set, uint32_t generation)
{
    for (int i = 0; i < FL_ABORT_SET_MEMORY && set->all == FL_OK; i++) {
        if (set->aborted[i].why != FL_OK && set->aborted[i].generation == generation) {
            return set->aborted[i].why;
        }
    }
    return set->all != FL_OK ? set->all : generation <= set->until ? set->up_to_it : FL_OK;
}

static fl_status fail_aborted(uint32_t generation, fl_status why)
{
    return why == FL_OK ? FL_OK : fl_fail(why, "the controller ended generation %u", generation);
}

fl_status fl_abort_set_add(fl_abort_set *set, fl_abortable *abortable)
{
    pthread_mutex_lock(&set->lock);
    fl_status why = find_reason(set, abortable->generation);
    if (why == FL_OK) {
        abortable->previous = NULL;
        abortable->next = set->first;
        if (set->first != NULL) {
            set->first->previous = abortable;
        }
        set->first = abortable;
    }
    pthread_mutex_unlock(&set->lock);
    return fail_aborted(abortable->generation, why);
}

void fl_abort_set_remove(fl_abort_set *set, fl_abortable *abortable)
{
    pthread_mutex_lock(&set->lock);
    bool is_first = set->first == abortable;
    if (is_first) {
        set->first = abortable->next;
    } else if (abortable->previous != NULL) {
        abortable->previous->next = abortable->next;
    }
    if ((is_first || abortable->previous != NULL) && abortable->next != NULL) {
        abortable->next->previous = abortable->previous;
    }
    abortable->previous = abortable->next = NULL;
    pthread_mutex_unlock(&set->lock);
}

void fl_abort_set_abort(fl_abort_set *set, uint32_t generation, fl_status why)
{
    assert(why != FL_OK);
    pthread_mutex_lock(&set->lock);
    if (find_reason(set, generation) == FL_OK) {
        unsigned at = set->n_aborted++ % FL_ABORT_SET_MEMORY;
        set->aborted[at].generation = generation;
        set->aborted[at].why = why;
    }
    for (fl_abortable *a = set->first; a != NULL; a = a->next) {
        if (a->generation == generation) {
            a->abort(a->self, why);
        }
    }
    pthread_mutex_unlock(&set->lock);
}

void fl_abort_set_abort_all(fl_abort_set *set, fl_status why)
{
    assert(why != FL_OK);
    pthread_mutex_lock(&set->lock);
    set->all = set->all == FL_OK ? why : set->all;
    for (fl_abortable *a = set->first; a != NULL; a = a->next) {
        a->abort(a->self, why);
    }
    pthread_mutex_unlock(&set->lock);
}

void fl_abort_set_abort_until(fl_abort_set *set, uint32_t until, fl_status why)
{
    assert(why != FL_OK);
    pthread_mutex_lock(&set->lock);
    set->until = until > set->until ? until : set->until;
    set->up_to_it = set->up_to_it == FL_OK ? why : set->up_to_it;
    for (fl_abortable *a = set->first; a != NULL; a = a->next) {
        if (a->generation <= until) {
            a->abort(a->self, why);
        }
    }
    pthread_mutex_unlock(&set->lock);
}

void fl_abort_set_look(fl_abort_set *set, fl_net_unanswered *worst)
{
    *worst = (fl_net_unanswered){0};
    pthread_mutex_lock(&set->lock);
    for (fl_abortable *a = set->first; a != NULL; a = a->next) {
        if (a->look != NULL) {
            a->look(a->self, worst);
        }
    }
    pthread_mutex_unlock(&set->lock);
}

fl_status fl_abort_set_check(fl_abort_set *set, uint32_t generation)
{
    pthread_mutex_lock(&set->lock);
    fl_status why = find_reason(set, generation);
    pthread_mutex_unlock(&set->lock);
    return fail_aborted(generation, why);
}
