/* What the files of a loader share: loader.c has its ring, loader_create.c its memory. */
#ifndef FL_DATA_LOADER_STATE_H
#define FL_DATA_LOADER_STATE_H

#include "data/loader.h"

#include <pthread.h>
#include <stdatomic.h>

enum { FL__LOADER_MESSAGE_BYTES = 512 };

typedef struct fl__loader_slot {
    fl_load_request request; /* its ids point to the next field */
    int64_t *ids;            /* [max_samples] */
    int32_t *offsets;        /* [max_samples + 1] */
    unsigned char *data;     /* [n_pieces] of the ring */
    size_t begin, n_pieces;
    fl_event *copied; /* a device has copied what this slot had; NULL: no device copies */
    fl_event *before; /* that of the slot released last when this request was made; NULL: none */
    fl_status status; /* of reading */
    bool failed;      /* take has reported it: there is nothing to release */
    char message[FL__LOADER_MESSAGE_BYTES];
} fl__loader_slot;

struct fl_loader {
    fl_dataset dataset;    /* borrowed */
    fl_load_source source; /* read NULL: the data set reads */
    fl_shape max;          /* of a raw sample; not with a source */
    size_t row_bytes;
    fl_loader_room room;
    uint64_t depth;
    unsigned char *ring; /* [room.n_pieces * room.piece_bytes] */
    size_t head;         /* the piece behind those of the newest request */
    fl_event *copied;    /* of the slot that was released last */
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t requested_more, read_more, released_more;
    atomic_bool stop;
    uint64_t n_requested, n_read, n_taken, n_released;
    fl__loader_slot *slots; /* [depth] */
};

/* The body of the loader's thread: ②. argument: fl_loader */
void *fl__loader_read_ahead(void *argument);

#endif
