/* A text is read and tokenized in pieces, so that of a large file only the ids are held:
 *
 *     file ──> ① chunks of bytes ──> ② whole lines ──> ③ their ids ──> the ids of the file
 *
 * A piece ends behind a line feed that a visible ASCII character follows. There, both kinds of
 * tokenizers end a word whatever the rest of the text is, so the ids are those of the whole text.
 */
#include "data/text/read_text.h"

#include "data/memory_share.h"
#include "data/source.h"
#include "device/system/alloc.h"

#include <inttypes.h>
#include <string.h>

enum { CHUNK_BYTES = 1 << 20 };

typedef struct text_reader {
    const char *path;
    const fl_tokenizer *tokenizer;
    fl_token_scratch *scratch;
    fl__source source;
    bool is_open;
    void *bytes; /* what was read and not tokenized yet: n_bytes of bytes_room */
    size_t n_bytes, bytes_room;
    int64_t line; /* its first line, from 1 */
    fl_tokens piece;
    size_t piece_room;
    void *ids; /* n_ids of ids_room */
    size_t n_ids, ids_room;
    fl_memory_share share;
} text_reader;

/* The ids so far, the text that is not tokenized yet, and n_tokens more tokens, here and in the
 * tokenizer. */
static fl_status check_memory(const text_reader *r, size_t n_bytes, size_t n_tokens)
{
    enum { TOKEN_BYTES = 2 * sizeof(int32_t) + sizeof(fl_token_span) };
    return fl__memory_share_check(&r->share, r->path, r->line,
                                  n_bytes + r->n_ids * sizeof(int32_t) + n_tokens * TOKEN_BYTES);
}

/* ①: false at the end of the file. */
static fl_status read_chunk(text_reader *r, bool *more)
{
    size_t got = 0;
    FL_TRY(check_memory(r, r->n_bytes + CHUNK_BYTES, 0));
    FL_TRY(fl_alloc_room(&r->bytes, r->n_bytes, CHUNK_BYTES, 1, &r->bytes_room));
    FL_TRY(fl__source_take(&r->source, (uint8_t *)r->bytes + r->n_bytes, CHUNK_BYTES, &got));
    r->n_bytes += got;
    *more = got == CHUNK_BYTES;
    return *more ? FL_OK : fl__source_expect_end(&r->source);
}

/* ②: the bytes of the lines that the rest of the text cannot change. Only the last chunk can have
 * the end of one: what was there before had none. */
static size_t whole_lines(const text_reader *r)
{
    const char *bytes = r->bytes;
    size_t first = r->n_bytes > CHUNK_BYTES ? r->n_bytes - CHUNK_BYTES : 0;
    for (size_t at = r->n_bytes; at > first && at >= 2; at--) {
        char next = bytes[at - 1];
        if (bytes[at - 2] == '\n' && next > ' ' && next < 0x7F) {
            return at - 1;
        }
    }
    return 0;
}

static int64_t count_lines(const char *bytes, size_t n)
{
    int64_t lines = 0;
    for (const char *at = bytes; (at = memchr(at, '\n', n - (size_t)(at - bytes))) != NULL; at++) {
        lines++;
    }
    return lines;
}

/* ③: the first n bytes, which are then done with. */
static fl_status encode_piece(text_reader *r, size_t n)
{
    const fl_token_request request = {.text = {.bytes = r->bytes, .n_bytes = n}};
    int64_t most = fl_tokenizer_capacity(r->tokenizer, n);
    if (n == 0) {
        return FL_OK;
    }
    FL_TRY(check_memory(r, r->n_bytes, (size_t)most));
    if (most > r->piece.capacity) {
        FL_TRY(fl_alloc_room((void **)&r->piece.ids, 0, (size_t)most, sizeof(int32_t),
                             &r->piece_room));
        r->piece.capacity = most;
    }
    fl_status status = fl_tokenizer_encode(r->tokenizer, r->scratch, &request, &r->piece);
    if (status != FL_OK) {
        return fl_within(status, "%s: in the text from line %" PRId64 " on", r->path, r->line);
    }
    size_t n_new = (size_t)r->piece.n;
    FL_TRY(fl_alloc_room(&r->ids, r->n_ids, n_new, sizeof(int32_t), &r->ids_room));
    if (n_new > 0) {
        memcpy((int32_t *)r->ids + r->n_ids, r->piece.ids, n_new * sizeof(int32_t));
    }
    r->n_ids += n_new;
    r->line += count_lines(r->bytes, n);
    r->n_bytes -= n;
    memmove(r->bytes, (char *)r->bytes + n, r->n_bytes);
    return FL_OK;
}

static fl_status read_pieces(text_reader *r)
{
    bool more = true;
    r->share = fl__memory_share_take();
    FL_TRY(fl_token_scratch_create(r->tokenizer, &r->scratch));
    FL_TRY(fl__source_open(r->path, &r->source));
    r->is_open = true;
    while (more) {
        FL_TRY(read_chunk(r, &more));
        FL_TRY(encode_piece(r, more ? whole_lines(r) : r->n_bytes));
    }
    return FL_OK;
}

fl_status fl__text_read(const char *path, const fl_tokenizer *tokenizer, int32_t **ids, int64_t *n)
{
    text_reader r = {.path = path, .tokenizer = tokenizer, .line = 1};
    fl_status status = read_pieces(&r);
    if (r.is_open) {
        fl__source_fini(&r.source);
    }
    fl_token_scratch_destroy(&r.scratch);
    fl_free(r.bytes);
    fl_free(r.piece.ids);
    if (status != FL_OK) {
        fl_free(r.ids);
        return fl__memory_name_file(status, path);
    }
    *ids = r.ids;
    *n = (int64_t)r.n_ids;
    return FL_OK;
}
