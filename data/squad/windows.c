#include "data/squad/windows.h"

#include "device/errors/failure.h"
#include "device/system/alloc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void fl__squad_split_fini(fl_squad_split *split)
{
    fl__text_pool_fini(&split->contexts);
    fl__text_pool_fini(&split->ids);
    fl__text_pool_fini(&split->answers);
    fl__token_samples_fini(&split->context_tokens);
    fl__token_samples_fini(&split->question_tokens);
    fl_free(split->questions);
    fl_free(split->windows);
    *split = (fl_squad_split){0};
}

void fl__squad_answers_of(const fl_squad_split *split, int64_t question, int64_t *first,
                          int64_t *end)
{
    const fl_squad_question *q = &split->questions[question];
    *first = q->first_answer;
    *end = question + 1 < split->ids.n ? q[1].first_answer : split->answers.n;
}

/* ---- reading a window ---- */

int64_t fl__squad_window_prefix(const fl_squad_split *s, const fl_token_frame *f,
                                const fl_squad_window *w)
{
    return f->n[0] + fl__token_samples_length(&s->question_tokens, w->question) + f->n[1];
}

int64_t fl__squad_window_length(const fl_squad_split *s, const fl_token_frame *f,
                                const fl_squad_window *w)
{
    return fl__squad_window_prefix(s, f, w) + w->n + f->n[2];
}

typedef struct window_writer {
    int32_t *to;
    bool types;
} window_writer;

/* types: of each token, or NULL where all have `type`. */
static void write_ids(window_writer *w, const int32_t *ids, int64_t n, const int32_t *types,
                      int32_t type)
{
    for (int64_t i = 0; i < n; i++) {
        *w->to++ = ids[i];
        if (w->types) {
            *w->to++ = types == NULL ? type : types[i];
        }
    }
}

void fl__squad_window_write(const fl_squad_split *s, const fl_token_frame *f,
                            const fl_squad_window *w, bool types, int32_t *out)
{
    const fl_token_samples *q = &s->question_tokens, *c = &s->context_tokens;
    window_writer to = {out, types};
    int64_t context = s->questions[w->question].context;
    write_ids(&to, f->ids[0], f->n[0], f->types[0], 0);
    write_ids(&to, q->ids + q->begin[w->question], fl__token_samples_length(q, w->question), NULL,
              f->text_type);
    write_ids(&to, f->ids[1], f->n[1], f->types[1], 0);
    write_ids(&to, c->ids + c->begin[context] + w->first, w->n, NULL, f->pair_type);
    write_ids(&to, f->ids[2], f->n[2], f->types[2], 0);
}

/* ---- tokens ---- */

/* The texts of a pool, and what they are, for messages. */
typedef struct named_pool {
    const char *path, *what;
    const fl_text_pool *pool;
} named_pool;

static void get_text(const void *self, size_t i, fl_text *text, fl_text *pair)
{
    const named_pool *p = self;
    (void)pair;
    *text = fl__text_pool_get(p->pool, (int64_t)i);
}

static void place_text(const void *self, size_t i, char place[FL_PLACE_BYTES])
{
    const named_pool *p = self;
    snprintf(place, FL_PLACE_BYTES, "%s: %s %zu", p->path, p->what, i + 1);
}

static fl_status encode_pool(const named_pool *pool, const fl_token_encoding *encoding,
                             fl_token_samples *out)
{
    const fl_text_list texts = {
        .self = pool, .n = (size_t)pool->pool->n, .get = get_text, .place = place_text};
    return fl__tokens_encode(&texts, encoding, out);
}

static fl_status encode_file(const char *path, const fl_squad_file *file, const fl_squad_cut *cut,
                             fl_squad_split *split)
{
    const named_pool contexts = {path, "the context of paragraph", &file->contexts};
    const named_pool questions = {path, "question", &file->texts};
    const fl_token_encoding with_spans = {.tokenizer = cut->tokenizer, .spans = true};
    const fl_token_encoding alone = {.tokenizer = cut->tokenizer, .allows_empty = true};
    FL_TRY(encode_pool(&contexts, &with_spans, &split->context_tokens));
    return encode_pool(&questions, &alone, &split->question_tokens);
}

/* ---- windows ---- */

typedef struct window_cutter {
    const char *path;
    const fl_squad_cut *cut;
    fl_token_frame frame;
    fl_squad_split *split;
    size_t windows_room;
} window_cutter;

/* The tokens of the answer within the window: from the last one that begins at or before the
 * answer to the first one that ends at or behind it. */
static void find_target(const window_cutter *c, fl_squad_window *w)
{
    const fl_squad_split *s = c->split;
    const fl_squad_question *q = &s->questions[w->question];
    const fl_token_samples *tokens = &s->context_tokens;
    const fl_token_span *spans = tokens->spans + tokens->begin[q->context] + w->first;
    int32_t prefix = (int32_t)fl__squad_window_prefix(s, &c->frame, w);
    int32_t start = 0, end = w->n - 1;
    if (q->kind == FL_SQUAD_MISPLACED) {
        w->target[0] = w->target[1] = -1;
        return;
    }
    if (q->kind == FL_SQUAD_IMPOSSIBLE || spans[0].begin > q->begin || spans[end].end < q->end) {
        return;
    }
    while (start + 1 < w->n && spans[start + 1].begin <= q->begin) {
        start++;
    }
    while (end > 0 && spans[end - 1].end >= q->end) {
        end--;
    }
    w->target[0] = prefix + start;
    w->target[1] = prefix + end;
}

static fl_status add_window(window_cutter *c, int64_t question, int64_t first, int64_t n)
{
    fl_squad_split *s = c->split;
    fl_squad_window w = {(int32_t)question, (int32_t)first, (int32_t)n, {0, 0}};
    FL_TRY(fl_alloc_room((void **)&s->windows, (size_t)s->n_windows, 1, sizeof *s->windows,
                         &c->windows_room));
    find_target(c, &w);
    s->windows[s->n_windows++] = w;
    return FL_OK;
}

static fl_status refuse_room(const window_cutter *c, int64_t question, int64_t room)
{
    const fl_text id = fl__text_pool_get(&c->split->ids, question);
    int64_t n = fl__token_samples_length(&c->split->question_tokens, question);
    if (room <= 0) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("data.max_tokens"),
                             "found %" PRId64 ", but %s: question %.*s has %" PRId64
                             " tokens: allowed: more than %" PRId64 ", so that its context fits",
                             c->cut->max_tokens, c->path, (int)(id.n_bytes < 40 ? id.n_bytes : 40),
                             id.bytes, n, c->cut->max_tokens - room);
    }
    return fl_fail_field(FL_EINVAL, FL_FIELDS("data.stride", "data.max_tokens"),
                         "found %" PRId64 ", but %s: question %.*s leaves %" PRId64 " of %" PRId64
                         " tokens to its context: allowed: less than that",
                         c->cut->stride, c->path, (int)(id.n_bytes < 40 ? id.n_bytes : 40),
                         id.bytes, room, c->cut->max_tokens);
}

static fl_status cut_question(window_cutter *c, int64_t question)
{
    const fl_squad_split *s = c->split;
    const fl_token_frame *f = &c->frame;
    int64_t n = fl__token_samples_length(&s->context_tokens, s->questions[question].context);
    int64_t room = c->cut->max_tokens - f->n[0] - f->n[1] - f->n[2] -
                   fl__token_samples_length(&s->question_tokens, question);
    if (n <= room) {
        return add_window(c, question, 0, n);
    }
    if (c->cut->stride >= room) {
        return refuse_room(c, question, room);
    }
    for (int64_t first = 0;; first += room - c->cut->stride) {
        int64_t left = n - first;
        FL_TRY(add_window(c, question, first, left < room ? left : room));
        if (left <= room) {
            return FL_OK;
        }
    }
}

static fl_status cut_questions(window_cutter *c)
{
    fl_squad_split *s = c->split;
    for (int64_t i = 0; i < s->ids.n; i++) {
        if (c->cut->trains && s->questions[i].kind == FL_SQUAD_MISPLACED) {
            s->n_left_out++;
            continue;
        }
        FL_TRY(cut_question(c, i));
    }
    return s->n_windows > 0
               ? FL_OK
               : fl_fail(FL_EFORMAT,
                         "%s: no question found whose answer stands where answer_start says, at "
                         "least one allowed",
                         c->path);
}

/* Windows have no need of the questions' texts. */
static void take_texts(fl_squad_file *file, fl_squad_split *split)
{
    split->contexts = file->contexts;
    split->ids = file->ids;
    split->answers = file->answers;
    split->questions = file->questions;
    file->contexts = file->ids = file->answers = (fl_text_pool){0};
    file->questions = NULL;
}

fl_status fl__squad_windows_cut(const char *path, fl_squad_file *file, const fl_squad_cut *cut,
                                fl_squad_split *out)
{
    fl_squad_split split = {0};
    window_cutter c = {.path = path, .cut = cut, .split = &split};
    FL_TRY(fl_tokenizer_pair_frame(cut->tokenizer, &c.frame));
    fl_status status = encode_file(path, file, cut, &split);
    take_texts(file, &split);
    if (status == FL_OK) {
        status = cut_questions(&c);
    }
    if (status == FL_OK) {
        *out = split;
    } else {
        fl__squad_split_fini(&split);
    }
    return status;
}
