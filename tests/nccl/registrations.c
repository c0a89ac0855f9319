/* Buffers that are registered with a communicator of the stand-in for NCCL. NCCL itself would read
 * memory that is gone, or mix ways of moving data; here the process dies with a line. */
#include "tests/nccl/comm.h"

#include <stdio.h>
#include <stdlib.h>

struct registration {
    char *data;
    size_t size_bytes;
    registration *next;
};

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "stand-in for NCCL: %s\n", what);
    abort();
}

/* Without streams of its own, the stand-in does not know what memory there is. */
static bool is_there(const struct ncclComm *c, const registration *r)
{
    return fault_without_streams() || c->stream == NULL ||
           c->stream->holds(c->stream, r->data, r->size_bytes);
}

/* The registration that has this byte, or NULL. With the lock. */
static registration *find_byte(const struct ncclComm *c, const char *at)
{
    registration *r = c->registrations;
    while (r != NULL && !(at >= r->data && at < r->data + r->size_bytes)) {
        r = r->next;
    }
    return r;
}

#ifndef STANDIN_WITHOUT_SHRINK
EXPORT fl_nccl_result ncclCommRegister(struct ncclComm *c, void *buffer, size_t size_bytes,
                                       void **handle)
{
    fl_nccl_result result = FL_NCCL_SUCCESS;
    fault f = fault_of("CommRegister");
    char *data = buffer;
    pthread_mutex_lock(&comm_lock);
    if (f.kind == FAULT_FAIL) {
        result = comm_refuse((fl_nccl_result)f.value, "it failed on request");
    } else if (c->state != READY) {
        result = comm_refuse(FL_NCCL_INVALID_USAGE, "another call is in progress");
    } else if (size_bytes == 0 || find_byte(c, data) != NULL ||
               find_byte(c, data + size_bytes - 1) != NULL) {
        die("a buffer is registered that has no byte, or one of another that is registered");
    } else {
        registration *r = malloc(sizeof *r);
        if (r == NULL) {
            die("no memory");
        }
        *r = (registration){data, size_bytes, c->registrations};
        if (!is_there(c, r)) {
            die("a buffer is registered that is no memory of the device");
        }
        c->registrations = r;
        *handle = r;
    }
    pthread_mutex_unlock(&comm_lock);
    return result;
}

EXPORT fl_nccl_result ncclCommDeregister(struct ncclComm *c, void *handle)
{
    fault f = fault_of("CommDeregister");
    pthread_mutex_lock(&comm_lock);
    registration **at = &c->registrations;
    while (*at != NULL && *at != handle) {
        at = &(*at)->next;
    }
    registration *r = *at;
    if (r == NULL) {
        die("a handle is used that is not, or no longer, that of a registered buffer");
    }
    if (!is_there(c, r)) {
        die("a buffer was given back while it was registered");
    }
    *at = r->next;
    free(r);
    pthread_mutex_unlock(&comm_lock);
    return f.kind == FAULT_FAIL ? comm_refuse((fl_nccl_result)f.value, "it failed on request")
                                : FL_NCCL_SUCCESS;
}
#endif

void comm_end_registrations(struct ncclComm *c, bool aborted)
{
    while (c->registrations != NULL) {
        registration *r = c->registrations;
        if (!is_there(c, r)) {
            die("a buffer was given back while it was registered");
        }
        if (!aborted) {
            die("a communicator is destroyed while buffers are registered with it");
        }
        c->registrations = r->next;
        free(r);
    }
}

/* ---- all ranks, or none ---- */

static atomic_uint *slot_of(const op *o, int rank)
{
    return &o->comm->end.b->registered[rank][o->turn % BOARD_TURNS];
}

void comm_note_registered(const op *o)
{
    pthread_mutex_lock(&comm_lock);
    bool registered = find_byte(o->comm, o->kind == OP_SEND ? o->from : o->to) != NULL;
    pthread_mutex_unlock(&comm_lock);
    atomic_store(slot_of(o, o->comm->end.rank), 2 * o->turn + registered);
}

void comm_check_registered(const op *o)
{
    bool pair = o->kind == OP_SEND || o->kind == OP_RECEIVE;
    unsigned mine = atomic_load(slot_of(o, o->comm->end.rank));
    for (int rank = 0; rank < o->comm->end.n_ranks; rank++) {
        unsigned its = atomic_load(slot_of(o, rank));
        if ((!pair || rank == o->peer) && its / 2 == o->turn && its != mine) {
            die("of one operation some ranks' buffers are registered and others' are not");
        }
    }
}
