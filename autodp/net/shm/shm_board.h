/* The memory that all members of a net on one host have in common: a slot for each member, and a
 * lane from each member to each other one.
 *
 *     head | slots [size] | lanes [from][to]
 *
 * A lane is a ring of bytes with one writer and one reader. Whoever writes to a lane or makes room
 * in it leaves news in the slot of the member at its other end, and rings that member's bell. So a
 * member looks only at lanes with news, and the kernel holds only pages of lanes that were used. */
#ifndef FL_AUTODP_NET_SHM_SHM_BOARD_H
#define FL_AUTODP_NET_SHM_SHM_BOARD_H

#include "autodp/net/net.h"
#include "device/system/shared.h"

#include <stdatomic.h>

/* What a member has come to. */
typedef enum fl_shm_presence {
    FL_SHM_ABSENT, /* it has not joined yet */
    FL_SHM_MEMBER,
    FL_SHM_LEFT,
    FL_SHM_BROKEN, /* its net was broken when it closed it */
} fl_shm_presence;

enum { FL_SHM_LANE_BYTES = 64 * 1024 - 192 };

typedef struct fl_shm_lane {
    _Alignas(64) atomic_uint_fast64_t written; /* bytes, ever */
    _Alignas(64) atomic_uint_fast64_t read;
    atomic_bool wants_room; /* the writer has more */
    _Alignas(64) unsigned char bytes[FL_SHM_LANE_BYTES];
} fl_shm_lane;

typedef struct fl_shm_slot fl_shm_slot;

typedef struct fl_shm_board {
    fl_shared *memory;
    int rank, size;
    unsigned char *slots;
    size_t slot_bytes;
    fl_shm_lane *lanes;
} fl_shm_board;

/* What names a board to the other members. */
typedef struct fl_shm_board_key {
    uint64_t magic;
    int64_t pid; /* 0: its maker could not make one */
    fl_shared_key key;
} fl_shm_board_key;

/* Make the board, or map the one that another member made. FL_ENOTSUP: the system has no such
 * memory. FL_EPEER: its maker is gone. */
fl_status fl_shm_board_create(fl_shm_board *board, int size, fl_shm_board_key *key) FL_MUST_CHECK;
fl_status fl_shm_board_join(fl_shm_board *board, int size,
                            const fl_shm_board_key *key) FL_MUST_CHECK;
void fl_shm_board_close(fl_shm_board *board); /* all zero is fine */

/* Become member board->rank. The last one wakes all others. */
void fl_shm_board_arrive(fl_shm_board *board);
int fl_shm_board_n_arrived(const fl_shm_board *board);

/* What this member has come to, and why its net was broken; all others are woken. */
void fl_shm_board_set(fl_shm_board *board, fl_shm_presence presence, fl_status why);
fl_shm_presence fl_shm_board_presence(const fl_shm_board *board, int member);
fl_status fl_shm_board_why(const fl_shm_board *board, int member);
int64_t fl_shm_board_pid(const fl_shm_board *board, int member);

/* Bytes that went into the lane to `peer`, or came out of the one from it; fewer than asked for if
 * the lane is full or empty. to NULL: they are thrown away. Threads: one at a time. */
size_t fl_shm_board_put(fl_shm_board *board, int peer, const void *from, size_t size_bytes);
size_t fl_shm_board_get(fl_shm_board *board, int peer, void *to, size_t size_bytes);

/* Leave news for `peer` and ring its bell. */
void fl_shm_board_notify(fl_shm_board *board, int peer);

/* Whether the writer of the lane from `peer` waited for room. It does no longer. */
bool fl_shm_board_room_wanted(fl_shm_board *board, int peer);

/* The next word of members with news, taken: bit i is member word * 64 + i. word < n_words. */
int fl_shm_board_n_words(const fl_shm_board *board);
uint64_t fl_shm_board_take_news(fl_shm_board *board, int word);

/* The own bell: a count, ringing, and sleeping while the count is `seen`, at most slice_us. */
unsigned fl_shm_board_bell(const fl_shm_board *board);
void fl_shm_board_ring(fl_shm_board *board, int member);
void fl_shm_board_sleep(fl_shm_board *board, unsigned seen, int64_t slice_us);

#endif
