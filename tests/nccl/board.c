#include "tests/nccl/board.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- waiting ---- */

unsigned board_seen(board *b)
{
    return atomic_load(&b->changes);
}

/* A process that dies changes nothing: look now and then. */
void board_await(board *b, unsigned seen)
{
    const struct timespec longest = {.tv_nsec = 50 * 1000 * 1000};
    syscall(SYS_futex, &b->changes, FUTEX_WAIT, seen, &longest, NULL, 0);
}

void board_change(board *b)
{
    atomic_fetch_add(&b->changes, 1);
    syscall(SYS_futex, &b->changes, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

/* ---- the memory ---- */

bool board_create(board_place *place)
{
    int fd = memfd_create("nccl-standin", MFD_CLOEXEC);
    *place = (board_place){.pid = getpid(), .fd = fd};
    return fd >= 0 && ftruncate(fd, sizeof(board)) == 0;
}

board *board_open(const board_place *place)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%lld/fd/%lld", (long long)place->pid, (long long)place->fd);
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return NULL;
    }
    void *memory = mmap(NULL, sizeof(board), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return memory == MAP_FAILED ? NULL : memory;
}

void board_close(board *b)
{
    if (b != NULL) {
        munmap(b, sizeof *b);
    }
}

/* ---- messages ---- */

static size_t chunk_bytes(size_t size_bytes, size_t at)
{
    return size_bytes - at < BOARD_CHUNK ? size_bytes - at : BOARD_CHUNK;
}

/* Wait until n_full - n_empty is `n`. */
static bool wait_mail(const board_end *e, board_mail *m, unsigned n)
{
    for (;;) {
        unsigned seen = board_seen(e->b);
        if (atomic_load(&m->n_full) - atomic_load(&m->n_empty) == n) {
            return true;
        }
        if (atomic_load(e->aborted)) {
            return false;
        }
        board_await(e->b, seen);
    }
}

/* It is sent once the receiver has all of it. */
bool board_send(board_end *e, int peer, const void *from, size_t size_bytes)
{
    board_mail *m = &e->b->mail[e->rank][peer];
    for (size_t at = 0; at < size_bytes; at += BOARD_CHUNK) {
        if (!wait_mail(e, m, 0)) {
            return false;
        }
        m->size_bytes = size_bytes;
        memcpy(m->bytes, (const char *)from + at, chunk_bytes(size_bytes, at));
        atomic_fetch_add(&m->n_full, 1);
        board_change(e->b);
    }
    return wait_mail(e, m, 0);
}

bool board_receive(board_end *e, int peer, void *to, size_t size_bytes)
{
    board_mail *m = &e->b->mail[peer][e->rank];
    for (size_t at = 0; at < size_bytes; at += BOARD_CHUNK) {
        if (!wait_mail(e, m, 1)) {
            return false;
        }
        if (m->size_bytes != size_bytes) {
            fprintf(stderr, "stand-in for NCCL: %zu bytes are sent, %zu are received\n",
                    m->size_bytes, size_bytes);
            abort();
        }
        memcpy((char *)to + at, m->bytes, chunk_bytes(size_bytes, at));
        atomic_fetch_add(&m->n_empty, 1);
        board_change(e->b);
    }
    return true;
}

/* ---- collectives ---- */

static bool meet_all(board_end *e)
{
    unsigned n = ++e->n_barriers;
    atomic_store(&e->b->barrier[e->rank], n);
    board_change(e->b);
    for (int rank = 0; rank < e->n_ranks;) {
        unsigned seen = board_seen(e->b);
        if ((int)(atomic_load(&e->b->barrier[rank]) - n) >= 0) {
            rank++;
        } else if (atomic_load(e->aborted)) {
            return false;
        } else {
            board_await(e->b, seen);
        }
    }
    return true;
}

static void sum_parts(const board_end *e, float *to, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        float sum = ((const float *)(const void *)e->b->part[0])[i];
        for (int rank = 1; rank < e->n_ranks; rank++) {
            sum += ((const float *)(const void *)e->b->part[rank])[i];
        }
        to[i] = sum;
    }
}

bool board_sum(board_end *e, const float *from, float *to, size_t n)
{
    size_t size_bytes = n * sizeof *from;
    for (size_t at = 0; at < size_bytes; at += BOARD_CHUNK) {
        size_t bytes = chunk_bytes(size_bytes, at);
        memcpy(e->b->part[e->rank], (const char *)from + at, bytes);
        if (!meet_all(e)) {
            return false;
        }
        sum_parts(e, to + at / sizeof *to, bytes / sizeof *to);
        if (!meet_all(e)) {
            return false;
        }
    }
    return true;
}

bool board_broadcast(board_end *e, int root, const void *from, void *to, size_t size_bytes)
{
    for (size_t at = 0; at < size_bytes; at += BOARD_CHUNK) {
        size_t bytes = chunk_bytes(size_bytes, at);
        if (e->rank == root) {
            memcpy(e->b->part[root], (const char *)from + at, bytes);
        }
        if (!meet_all(e)) {
            return false;
        }
        memcpy((char *)to + at, e->b->part[root], bytes);
        if (!meet_all(e)) {
            return false;
        }
    }
    return true;
}
