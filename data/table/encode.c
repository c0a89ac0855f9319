/* Rows are encoded in blocks: a thread takes the next block, encodes its rows into memory of the
 * block's own, and the blocks are joined in their order.
 *
 *     ① rows ──> blocks ──> ② threads: block ──> ids, types, lengths ──> ③ arrays of the split */
#include "data/table/encode.h"

#include "data/table/table_dataset.h"
#include "device/alloc.h"
#include "device/failure.h"
#include "device/host_limits.h"
#include "device/thread.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <string.h>

_Static_assert((int)FL_TABLE_LINE_BYTES_MAX <= (int)FL_TEXT_BYTES_MAX, "a line fits the tokenizer");

enum { BLOCK_ROWS = 512, THREADS_MAX = 16, TYPE_MAX = UINT8_MAX };

typedef struct row_block {
    int32_t *ids;
    uint8_t *types;
    int64_t *n_tokens; /* [rows of the block] */
    size_t n, ids_room, types_room;
    fl_failure failure;
} row_block;

/* What all threads share. */
typedef struct encoder {
    const fl_table_rows *rows;
    const fl_table_encoding *encoding;
    row_block *blocks;
    size_t n_blocks;
    atomic_size_t next;   /* the first block that no thread has taken */
    atomic_size_t failed; /* the first one that failed; later blocks are not wanted */
} encoder;

/* The buffers of one thread. */
typedef struct encode_thread {
    encoder *encoder;
    fl_token_scratch *scratch;
    fl_tokens tokens;
    size_t ids_room, types_room;
    pthread_t thread;
    bool started;
} encode_thread;

/* ---- ② a block ---- */

static fl_status reserve_tokens(encode_thread *t, const fl_table_row *row)
{
    const fl_table_encoding *e = t->encoder->encoding;
    int64_t n = fl_tokenizer_capacity(e->tokenizer, row->cell[FL_TABLE_TEXT].n_bytes +
                                                        row->cell[FL_TABLE_PAIR].n_bytes);
    if (n <= t->tokens.capacity) {
        return FL_OK;
    }
    FL_TRY(fl_alloc_room((void **)&t->tokens.ids, 0, (size_t)n, sizeof(int32_t), &t->ids_room));
    if (e->types) {
        FL_TRY(fl_alloc_room((void **)&t->tokens.types, 0, (size_t)n, sizeof(int32_t),
                             &t->types_room));
    }
    t->tokens.capacity = n;
    return FL_OK;
}

static fl_status encode_row(encode_thread *t, const fl_table_row *row)
{
    const fl_table_encoding *e = t->encoder->encoding;
    const fl_token_request request = {.text = row->cell[FL_TABLE_TEXT],
                                      .pair = row->cell[FL_TABLE_PAIR],
                                      .special = true,
                                      .max_tokens = e->max_tokens,
                                      .cut = FL_CUT_LONGEST_FIRST};
    const char *path = t->encoder->rows->content->path;
    FL_TRY(reserve_tokens(t, row));
    fl_status status = fl_tokenizer_encode(e->tokenizer, t->scratch, &request, &t->tokens);
    if (status == FL_EINVAL) { /* no line is too long for the tokenizer, so it is the limit */
        return fl_fail_field(status, FL_FIELDS("data.max_tokens"), "%s", fl_errmsg());
    }
    if (status != FL_OK) {
        return fl_within(status, "%s: line %" PRId64, path, row->line);
    }
    if (t->tokens.n == 0) {
        return fl_fail(FL_EFORMAT,
                       "%s: line %" PRId64 ": a text without a token found, at least one token "
                       "allowed",
                       path, row->line);
    }
    return FL_OK;
}

static fl_status append_types(row_block *b, const fl_tokens *tokens)
{
    FL_TRY(fl_alloc_room((void **)&b->types, b->n, (size_t)tokens->n, 1, &b->types_room));
    for (int64_t i = 0; i < tokens->n; i++) {
        if (tokens->types[i] < 0 || tokens->types[i] > TYPE_MAX) {
            return fl_fail(FL_ENOTSUP, "token type %d found, 0 to %d allowed", tokens->types[i],
                           TYPE_MAX);
        }
        b->types[b->n + (size_t)i] = (uint8_t)tokens->types[i];
    }
    return FL_OK;
}

static fl_status encode_block(encode_thread *t, size_t index)
{
    const fl_table_rows *rows = t->encoder->rows;
    row_block *b = &t->encoder->blocks[index];
    size_t first = index * BLOCK_ROWS;
    size_t n_rows = rows->n - first < BLOCK_ROWS ? rows->n - first : BLOCK_ROWS;
    FL_TRY(fl_alloc_array(n_rows, sizeof *b->n_tokens, (void **)&b->n_tokens));
    for (size_t i = 0; i < n_rows; i++) {
        FL_TRY(encode_row(t, &rows->row[first + i]));
        size_t n = (size_t)t->tokens.n;
        FL_TRY(fl_alloc_room((void **)&b->ids, b->n, n, sizeof *b->ids, &b->ids_room));
        memcpy(b->ids + b->n, t->tokens.ids, n * sizeof *b->ids);
        if (t->encoder->encoding->types) {
            FL_TRY(append_types(b, &t->tokens));
        }
        b->n += n;
        b->n_tokens[i] = t->tokens.n;
    }
    return FL_OK;
}

static void note_failure(encoder *e, size_t index)
{
    size_t first = atomic_load(&e->failed);
    while (index < first && !atomic_compare_exchange_weak(&e->failed, &first, index)) {
    }
}

static void *encode_blocks(void *argument)
{
    encode_thread *t = argument;
    encoder *e = t->encoder;
    for (;;) {
        size_t index = atomic_fetch_add(&e->next, 1);
        /* Blocks before one that failed are still encoded: theirs is the first message. */
        if (index >= e->n_blocks || index > atomic_load(&e->failed)) {
            return NULL;
        }
        fl_status status = encode_block(t, index);
        if (status != FL_OK) {
            fl_failure_keep(&e->blocks[index].failure, status);
            note_failure(e, index);
        }
    }
}

/* ---- threads ---- */

static int choose_threads(const encoder *e)
{
    int n = e->encoding->n_threads;
    if (n == 0) {
        fl_host_limits machine;
        fl_host_limits_read("", &machine);
        n = machine.processors;
    }
    n = n < THREADS_MAX ? n : THREADS_MAX;
    return (size_t)n < e->n_blocks ? n : (int)e->n_blocks;
}

/* This thread works too, as number 0. */
static fl_status run_threads(encoder *e, encode_thread *threads, int n)
{
    fl_status status = FL_OK;
    for (int i = 0; i < n && status == FL_OK; i++) {
        threads[i].encoder = e;
        status = fl_token_scratch_create(e->encoding->tokenizer, &threads[i].scratch);
        if (status == FL_OK && i > 0) {
            status = fl_thread_start(&threads[i].thread, encode_blocks, &threads[i],
                                     "a thread that tokenizes");
            threads[i].started = status == FL_OK;
        }
    }
    if (status == FL_OK && n > 0) {
        encode_blocks(&threads[0]);
    }
    fl_failure failure = {0};
    fl_failure_keep(&failure, status);
    for (int i = 0; i < n; i++) {
        if (threads[i].started) {
            pthread_join(threads[i].thread, NULL);
        }
        fl_token_scratch_destroy(&threads[i].scratch);
        fl_free(threads[i].tokens.ids);
        fl_free(threads[i].tokens.types);
    }
    FL_TRY(fl_failure_raise(&failure));
    size_t failed = atomic_load(&e->failed);
    return failed < e->n_blocks ? fl_failure_raise(&e->blocks[failed].failure) : FL_OK;
}

/* ---- ③ ---- */

static fl_status join_blocks(const encoder *e, fl_table_split *split)
{
    size_t n_tokens = 0, at = 0;
    for (size_t i = 0; i < e->n_blocks; i++) {
        n_tokens += e->blocks[i].n;
    }
    split->n = (int64_t)e->rows->n;
    FL_TRY(fl_alloc_array(e->rows->n + 1, sizeof *split->begin, (void **)&split->begin));
    FL_TRY(fl_alloc_array(n_tokens, sizeof *split->ids, (void **)&split->ids));
    if (e->encoding->types) {
        FL_TRY(fl_alloc_array(n_tokens, 1, (void **)&split->types));
    }
    for (size_t i = 0; i < e->n_blocks; i++) {
        const row_block *b = &e->blocks[i];
        memcpy(split->ids + at, b->ids, b->n * sizeof *b->ids);
        if (e->encoding->types) {
            memcpy(split->types + at, b->types, b->n);
        }
        at += b->n;
    }
    for (size_t i = 0; i < e->rows->n; i++) {
        split->begin[i + 1] = split->begin[i] + e->blocks[i / BLOCK_ROWS].n_tokens[i % BLOCK_ROWS];
    }
    return FL_OK;
}

static fl_status encode_rows(encoder *e, fl_table_split *split)
{
    encode_thread threads[THREADS_MAX] = {0};
    FL_TRY(fl_alloc_array(e->n_blocks, sizeof *e->blocks, (void **)&e->blocks));
    FL_TRY(run_threads(e, threads, choose_threads(e)));
    return join_blocks(e, split);
}

fl_status fl__table_encode(const fl_table_rows *rows, const fl_table_encoding *encoding,
                           fl_table_split *out)
{
    encoder e = {
        .rows = rows, .encoding = encoding, .n_blocks = (rows->n + BLOCK_ROWS - 1) / BLOCK_ROWS};
    fl_table_split split = {0};
    atomic_init(&e.next, 0);
    atomic_init(&e.failed, SIZE_MAX);
    fl_status status = encode_rows(&e, &split);
    for (size_t i = 0; e.blocks != NULL && i < e.n_blocks; i++) {
        fl_free(e.blocks[i].ids);
        fl_free(e.blocks[i].types);
        fl_free(e.blocks[i].n_tokens);
    }
    fl_free(e.blocks);
    if (status == FL_OK) {
        *out = split;
    } else {
        fl__table_split_fini(&split);
    }
    return status;
}

void fl__table_split_fini(fl_table_split *split)
{
    fl_free(split->begin);
    fl_free(split->ids);
    fl_free(split->types);
    fl_free(split->labels);
    *split = (fl_table_split){0};
}
