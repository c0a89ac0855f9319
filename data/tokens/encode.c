/* Texts are encoded in blocks: a thread takes the next block, encodes its texts into memory of the
 * block's own, and the blocks are joined in their order.
 *
 *     ① texts ──> blocks ──> ② threads: block ──> ids, types, lengths ──> ③ flat arrays */
#include "data/tokens/encode.h"

#include "device/errors/failure.h"
#include "device/machine/host_limits.h"
#include "device/system/alloc.h"
#include "device/system/thread.h"

#include <stdatomic.h>
#include <string.h>

enum { BLOCK_TEXTS = 512, THREADS_MAX = 16, TYPE_MAX = UINT8_MAX };

typedef struct text_block {
    int32_t *ids;
    uint8_t *types;
    fl_token_span *spans;
    int64_t *n_tokens; /* [texts of the block] */
    size_t n, ids_room, types_room, spans_room;
    fl_failure failure;
} text_block;

/* What all threads share. */
typedef struct encoder {
    const fl_text_list *texts;
    const fl_token_encoding *encoding;
    text_block *blocks;
    size_t n_blocks;
    atomic_size_t next;   /* the first block that no thread has taken */
    atomic_size_t failed; /* the first one that failed; later blocks are not wanted */
} encoder;

/* The buffers of one thread. */
typedef struct encode_thread {
    encoder *encoder;
    fl_token_scratch *scratch;
    fl_tokens tokens;
    size_t ids_room, types_room, spans_room;
    pthread_t thread;
    bool started;
} encode_thread;

/* ---- ② a block ---- */

static fl_status reserve_tokens(encode_thread *t, size_t n_bytes)
{
    const fl_token_encoding *e = t->encoder->encoding;
    int64_t n = fl_tokenizer_capacity(e->tokenizer, n_bytes);
    if (n <= t->tokens.capacity) {
        return FL_OK;
    }
    FL_TRY(fl_alloc_room((void **)&t->tokens.ids, 0, (size_t)n, sizeof(int32_t), &t->ids_room));
    if (e->types) {
        FL_TRY(fl_alloc_room((void **)&t->tokens.types, 0, (size_t)n, sizeof(int32_t),
                             &t->types_room));
    }
    if (e->spans) {
        FL_TRY(fl_alloc_room((void **)&t->tokens.spans, 0, (size_t)n, sizeof(fl_token_span),
                             &t->spans_room));
    }
    t->tokens.capacity = n;
    return FL_OK;
}

static fl_status refuse_text(const encoder *e, size_t i, fl_status status)
{
    char place[FL_PLACE_BYTES];
    e->texts->place(e->texts->self, i, place);
    if (status != FL_OK) {
        return fl_within(status, "%s", place);
    }
    return fl_fail(FL_EFORMAT, "%s: a text without a token found, at least one token allowed",
                   place);
}

static fl_status encode_text(encode_thread *t, size_t i)
{
    const fl_token_encoding *e = t->encoder->encoding;
    const fl_text_list *texts = t->encoder->texts;
    fl_token_request request = {
        .special = e->special, .max_tokens = e->max_tokens, .cut = FL_CUT_LONGEST_FIRST};
    texts->get(texts->self, i, &request.text, &request.pair);
    FL_TRY(reserve_tokens(t, request.text.n_bytes + request.pair.n_bytes));
    fl_status status = fl_tokenizer_encode(e->tokenizer, t->scratch, &request, &t->tokens);
    if (status == FL_EINVAL) { /* files have no text that is too long, so it is the limit */
        return fl_fail_field(status, FL_FIELDS("data.max_tokens"), "%s", fl_errmsg());
    }
    return status != FL_OK || (t->tokens.n == 0 && !e->allows_empty)
               ? refuse_text(t->encoder, i, status)
               : FL_OK;
}

static fl_status append_types(text_block *b, const fl_tokens *tokens)
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

static fl_status append_tokens(text_block *b, const fl_tokens *tokens)
{
    size_t n = (size_t)tokens->n;
    if (n == 0) {
        return FL_OK;
    }
    FL_TRY(fl_alloc_room((void **)&b->ids, b->n, n, sizeof *b->ids, &b->ids_room));
    memcpy(b->ids + b->n, tokens->ids, n * sizeof *b->ids);
    if (tokens->types != NULL) {
        FL_TRY(append_types(b, tokens));
    }
    if (tokens->spans != NULL) {
        FL_TRY(fl_alloc_room((void **)&b->spans, b->n, n, sizeof *b->spans, &b->spans_room));
        memcpy(b->spans + b->n, tokens->spans, n * sizeof *b->spans);
    }
    b->n += n;
    return FL_OK;
}

static fl_status encode_block(encode_thread *t, size_t index)
{
    text_block *b = &t->encoder->blocks[index];
    size_t first = index * BLOCK_TEXTS, left = t->encoder->texts->n - first;
    size_t n_texts = left < BLOCK_TEXTS ? left : BLOCK_TEXTS;
    FL_TRY(fl_alloc_array(n_texts, sizeof *b->n_tokens, (void **)&b->n_tokens));
    for (size_t i = 0; i < n_texts; i++) {
        FL_TRY(encode_text(t, first + i));
        FL_TRY(append_tokens(b, &t->tokens));
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
        fl_free(threads[i].tokens.spans);
    }
    FL_TRY(fl_failure_raise(&failure));
    size_t failed = atomic_load(&e->failed);
    return failed < e->n_blocks ? fl_failure_raise(&e->blocks[failed].failure) : FL_OK;
}

/* ---- ③ ---- */

static fl_status reserve_samples(const encoder *e, fl_token_samples *samples)
{
    size_t n_tokens = 0;
    for (size_t i = 0; i < e->n_blocks; i++) {
        n_tokens += e->blocks[i].n;
    }
    samples->n = (int64_t)e->texts->n;
    FL_TRY(fl_alloc_array(e->texts->n + 1, sizeof *samples->begin, (void **)&samples->begin));
    FL_TRY(fl_alloc_array(n_tokens, sizeof *samples->ids, (void **)&samples->ids));
    if (e->encoding->types) {
        FL_TRY(fl_alloc_array(n_tokens, 1, (void **)&samples->types));
    }
    return e->encoding->spans
               ? fl_alloc_array(n_tokens, sizeof *samples->spans, (void **)&samples->spans)
               : FL_OK;
}

static void join_blocks(const encoder *e, fl_token_samples *samples)
{
    size_t at = 0;
    for (size_t i = 0; i < e->n_blocks; i++) {
        const text_block *b = &e->blocks[i];
        if (b->n == 0) {
            continue;
        }
        memcpy(samples->ids + at, b->ids, b->n * sizeof *b->ids);
        if (e->encoding->types) {
            memcpy(samples->types + at, b->types, b->n);
        }
        if (e->encoding->spans) {
            memcpy(samples->spans + at, b->spans, b->n * sizeof *b->spans);
        }
        at += b->n;
    }
    for (size_t i = 0; i < e->texts->n; i++) {
        int64_t n = e->blocks[i / BLOCK_TEXTS].n_tokens[i % BLOCK_TEXTS];
        samples->begin[i + 1] = samples->begin[i] + n;
    }
}

static fl_status encode_texts(encoder *e, fl_token_samples *samples)
{
    encode_thread threads[THREADS_MAX] = {0};
    FL_TRY(fl_alloc_array(e->n_blocks, sizeof *e->blocks, (void **)&e->blocks));
    FL_TRY(run_threads(e, threads, choose_threads(e)));
    FL_TRY(reserve_samples(e, samples));
    join_blocks(e, samples);
    return FL_OK;
}

fl_status fl__tokens_encode(const fl_text_list *texts, const fl_token_encoding *encoding,
                            fl_token_samples *out)
{
    encoder e = {.texts = texts,
                 .encoding = encoding,
                 .n_blocks = (texts->n + BLOCK_TEXTS - 1) / BLOCK_TEXTS};
    fl_token_samples samples = {0};
    atomic_init(&e.next, 0);
    atomic_init(&e.failed, SIZE_MAX);
    fl_status status = encode_texts(&e, &samples);
    for (size_t i = 0; e.blocks != NULL && i < e.n_blocks; i++) {
        fl_free(e.blocks[i].ids);
        fl_free(e.blocks[i].types);
        fl_free(e.blocks[i].spans);
        fl_free(e.blocks[i].n_tokens);
    }
    fl_free(e.blocks);
    if (status == FL_OK) {
        *out = samples;
    } else {
        fl__token_samples_fini(&samples);
    }
    return status;
}
