/* What the processes of one communicator of the stand-in for NCCL share: memory that carries their
 * data, and flags. It lies in a file without a name, which a process finds by the id of the process
 * that made it and the number of its descriptor. */
#ifndef FL_TESTS_NCCL_BOARD_H
#define FL_TESTS_NCCL_BOARD_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { BOARD_RANKS = 16, BOARD_CHUNK = 128 * 1024, BOARD_SPLITS = 16, BOARD_TURNS = 4 };

typedef struct board_place {
    int64_t pid, fd;
} board_place;

/* A message on its way from one rank to another, chunk by chunk. */
typedef struct board_mail {
    _Alignas(64) atomic_uint n_full, n_empty; /* chunks written, chunks read */
    size_t size_bytes;                        /* of the whole message */
    unsigned char bytes[BOARD_CHUNK];
} board_mail;

typedef struct board_split {
    struct {
        atomic_uint posted; /* the number of the split that it has come to */
        int color, key;
        atomic_uint made; /* the same, as the first of its color: `place` is of the child's board */
        board_place place;
    } rank[BOARD_RANKS];
} board_split;

typedef struct board {
    atomic_uint changes; /* what waits is woken by the next one */
    atomic_bool joined[BOARD_RANKS], finalized[BOARD_RANKS];
    /* whether a rank wants to be connected: to all (0), to a peer (1 + peer) */
    atomic_bool wants[BOARD_RANKS][BOARD_RANKS + 1];
    atomic_uint barrier[BOARD_RANKS]; /* how many a rank has come to */
    /* twice the turn of an operation, and one more if the rank's buffer is registered; by turn */
    atomic_uint registered[BOARD_RANKS][BOARD_TURNS];
    board_split split[BOARD_SPLITS]; /* by number modulo BOARD_SPLITS */
    board_split shrink;              /* a communicator is shrunk once */
    unsigned char part[BOARD_RANKS][BOARD_CHUNK];
    board_mail mail[BOARD_RANKS][BOARD_RANKS]; /* from, to */
} board;

/* false: no memory. The caller closes place->fd once nobody looks for the board any more. */
bool board_create(board_place *place);

/* NULL: the process that made it is gone. */
board *board_open(const board_place *place);
void board_close(board *b);

/* One rank's end of the data's way. Each function returns false as soon as *aborted is true;
 * otherwise it waits for the other ranks for ever, as NCCL does. */
typedef struct board_end {
    board *b;
    int rank, n_ranks;
    unsigned n_barriers;
    atomic_bool *aborted;
} board_end;

bool board_send(board_end *e, int peer, const void *from, size_t size_bytes);
bool board_receive(board_end *e, int peer, void *to, size_t size_bytes);
/* The sum of each element is taken in the order of the ranks. to and from may be the same. */
bool board_sum(board_end *e, const float *from, float *to, size_t n);
bool board_broadcast(board_end *e, int root, const void *from, void *to, size_t size_bytes);

/* Wait for what another rank, or another thread, changes:
 *     for (unsigned seen = board_seen(b); !condition; seen = board_seen(b)) {
 *         board_await(b, seen);
 *     }
 * whoever makes the condition true calls board_change. */
unsigned board_seen(board *b);
void board_await(board *b, unsigned seen);
void board_change(board *b);

#endif
