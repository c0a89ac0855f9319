#include "autodp/net/shm/shm_board.h"

#include <linux/futex.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { LINE = 64, PAGE = 4096, WORD_BITS = 64 };

static const uint64_t board_magic = 0x31424c46; /* FLB1 */

typedef struct board_head {
    _Alignas(LINE) atomic_int n_arrived;
} board_head;

struct fl_shm_slot {
    _Alignas(LINE) atomic_uint bell;
    atomic_uint n_sleeping;
    atomic_int presence; /* fl_shm_presence */
    atomic_int why;      /* fl_status */
    int64_t pid;
    _Alignas(LINE) atomic_uint_fast64_t news[];
};

/* ---- the memory ---- */

int fl_shm_board_n_words(const fl_shm_board *board)
{
    return (board->size + WORD_BITS - 1) / WORD_BITS;
}

static size_t rounded(size_t bytes, size_t unit)
{
    return (bytes + unit - 1) / unit * unit;
}

static fl_shm_slot *slot_of(const fl_shm_board *board, int member)
{
    return (fl_shm_slot *)(void *)(board->slots + (size_t)member * board->slot_bytes);
}

static fl_shm_lane *lane_of(const fl_shm_board *board, int from, int to)
{
    return board->lanes + (size_t)from * (size_t)board->size + (size_t)to;
}

static board_head *head_of(const fl_shm_board *board)
{
    return fl_shared_data(board->memory);
}

/* Sizes, and where the lanes begin. */
static size_t lanes_at(fl_shm_board *board, int size)
{
    board->size = size;
    board->slot_bytes =
        sizeof(fl_shm_slot) + rounded((size_t)fl_shm_board_n_words(board) * sizeof(uint64_t), LINE);
    return rounded(sizeof(board_head) + (size_t)size * board->slot_bytes, PAGE);
}

static size_t board_bytes(fl_shm_board *board, int size)
{
    return lanes_at(board, size) + (size_t)size * (size_t)size * sizeof(fl_shm_lane);
}

static void set_up(fl_shm_board *board)
{
    unsigned char *memory = fl_shared_data(board->memory);
    board->slots = memory + sizeof(board_head);
    board->lanes = (fl_shm_lane *)(void *)(memory + lanes_at(board, board->size));
}

fl_status fl_shm_board_create(fl_shm_board *board, int size, fl_shm_board_key *key)
{
    *key = (fl_shm_board_key){.magic = board_magic};
    if (prctl(PR_GET_DUMPABLE) != 1) { /* a program that its user may not read, for example */
        return fl_fail(FL_ENOTSUP, "the system lets no process look into another one's memory");
    }
    FL_TRY(fl_shared_create(board_bytes(board, size), &board->memory));
    set_up(board);
    key->pid = getpid();
    key->key = fl_shared_key_of(board->memory);
    return FL_OK;
}

fl_status fl_shm_board_join(fl_shm_board *board, int size, const fl_shm_board_key *key)
{
    if (key->magic != board_magic) {
        return fl_fail(FL_EFORMAT, "not the key of a board");
    }
    if (key->pid == 0) {
        return fl_fail(FL_ENOTSUP, "the first member cannot share memory");
    }
    if (fl_shared_join(key->pid, &key->key, board_bytes(board, size), &board->memory) != FL_OK) {
        return fl_fail(FL_EPEER, "the memory of the first member cannot be seen: %s", fl_errmsg());
    }
    set_up(board);
    return FL_OK;
}

void fl_shm_board_close(fl_shm_board *board)
{
    fl_shared_let_go(&board->memory); /* a member may not have read the last bytes yet */
}

/* ---- members ---- */

void fl_shm_board_arrive(fl_shm_board *board)
{
    fl_shm_slot *mine = slot_of(board, board->rank);
    mine->pid = getpid();
    atomic_store(&mine->presence, FL_SHM_MEMBER);
    if (atomic_fetch_add(&head_of(board)->n_arrived, 1) + 1 == board->size) {
        for (int member = 0; member < board->size; member++) {
            fl_shm_board_ring(board, member);
        }
    }
}

int fl_shm_board_n_arrived(const fl_shm_board *board)
{
    return atomic_load(&head_of(board)->n_arrived);
}

void fl_shm_board_set(fl_shm_board *board, fl_shm_presence presence, fl_status why)
{
    atomic_store(&slot_of(board, board->rank)->why, (int)why);
    atomic_store(&slot_of(board, board->rank)->presence, (int)presence);
    for (int member = 0; member < board->size; member++) {
        fl_shm_board_ring(board, member);
    }
}

fl_shm_presence fl_shm_board_presence(const fl_shm_board *board, int member)
{
    return (fl_shm_presence)atomic_load(&slot_of(board, member)->presence);
}

fl_status fl_shm_board_why(const fl_shm_board *board, int member)
{
    return (fl_status)atomic_load(&slot_of(board, member)->why);
}

int64_t fl_shm_board_pid(const fl_shm_board *board, int member)
{
    return slot_of(board, member)->pid;
}

/* ---- lanes ---- */

/* The two pieces of a ring in which `size_bytes` from count `at` on lie. */
static size_t first_piece(uint64_t at, size_t size_bytes)
{
    size_t to_end = FL_SHM_LANE_BYTES - (size_t)(at % FL_SHM_LANE_BYTES);
    return size_bytes < to_end ? size_bytes : to_end;
}

/* What is taken as the fill of a lane, whatever its other end wrote there. */
static size_t fill_of(uint64_t written, uint64_t read)
{
    uint64_t fill = written - read;
    return fill > FL_SHM_LANE_BYTES ? FL_SHM_LANE_BYTES : (size_t)fill;
}

static size_t put_some(fl_shm_lane *lane, const unsigned char *from, size_t size_bytes)
{
    uint64_t written = atomic_load(&lane->written);
    size_t room = FL_SHM_LANE_BYTES - fill_of(written, atomic_load(&lane->read));
    size_t n = size_bytes < room ? size_bytes : room, first = first_piece(written, n);
    memcpy(lane->bytes + written % FL_SHM_LANE_BYTES, from, first);
    memcpy(lane->bytes, from + first, n - first);
    atomic_store(&lane->written, written + n);
    return n;
}

size_t fl_shm_board_put(fl_shm_board *board, int peer, const void *from, size_t size_bytes)
{
    fl_shm_lane *lane = lane_of(board, board->rank, peer);
    size_t n = put_some(lane, from, size_bytes);
    if (n < size_bytes) {
        /* The reader may have made room before it could see that some is wanted. */
        atomic_store(&lane->wants_room, true);
        n += put_some(lane, (const unsigned char *)from + n, size_bytes - n);
    }
    return n;
}

size_t fl_shm_board_get(fl_shm_board *board, int peer, void *to, size_t size_bytes)
{
    fl_shm_lane *lane = lane_of(board, peer, board->rank);
    uint64_t read = atomic_load(&lane->read);
    size_t fill = fill_of(atomic_load(&lane->written), read);
    size_t n = size_bytes < fill ? size_bytes : fill, first = first_piece(read, n);
    if (to != NULL) {
        memcpy(to, lane->bytes + read % FL_SHM_LANE_BYTES, first);
        memcpy((unsigned char *)to + first, lane->bytes, n - first);
    }
    atomic_store(&lane->read, read + n);
    return n;
}

bool fl_shm_board_room_wanted(fl_shm_board *board, int peer)
{
    return atomic_exchange(&lane_of(board, peer, board->rank)->wants_room, false);
}

/* ---- news ---- */

void fl_shm_board_ring(fl_shm_board *board, int member)
{
    fl_shm_slot *slot = slot_of(board, member);
    atomic_fetch_add(&slot->bell, 1);
    if (atomic_load(&slot->n_sleeping) > 0) {
        syscall(SYS_futex, &slot->bell, FUTEX_WAKE, INT32_MAX, NULL, NULL, 0);
    }
}

void fl_shm_board_notify(fl_shm_board *board, int peer)
{
    uint64_t bit = (uint64_t)1 << board->rank % WORD_BITS;
    atomic_uint_fast64_t *word = &slot_of(board, peer)->news[board->rank / WORD_BITS];
    if (!(atomic_fetch_or(word, bit) & bit)) { /* else the bell is rung for earlier news */
        fl_shm_board_ring(board, peer);
    }
}

uint64_t fl_shm_board_take_news(fl_shm_board *board, int word)
{
    atomic_uint_fast64_t *news = &slot_of(board, board->rank)->news[word];
    return atomic_load(news) == 0 ? 0 : atomic_exchange(news, 0);
}

unsigned fl_shm_board_bell(const fl_shm_board *board)
{
    return atomic_load(&slot_of(board, board->rank)->bell);
}

void fl_shm_board_sleep(fl_shm_board *board, unsigned seen, int64_t slice_us)
{
    fl_shm_slot *slot = slot_of(board, board->rank);
    const struct timespec slice = {.tv_sec = slice_us / 1000000,
                                   .tv_nsec = slice_us % 1000000 * 1000};
    atomic_fetch_add(&slot->n_sleeping, 1);
    (void)syscall(SYS_futex, &slot->bell, FUTEX_WAIT, seen, &slice, NULL, 0);
    atomic_fetch_sub(&slot->n_sleeping, 1);
}
