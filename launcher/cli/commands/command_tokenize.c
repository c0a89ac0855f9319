/* frostline tokenize: the ids of text, a line at a time. */
#include "data/tokenizer/files/tokenizer_open.h"
#include "device/system/alloc.h"
#include "launcher/cli/cli.h"
#include "launcher/job/text/text.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef enum output_form { PRINT_IDS, PRINT_PIECES, PRINT_JSON } output_form;

typedef struct line_job {
    const fl_tokenizer *tokenizer;
    fl_token_scratch *scratch;
    output_form form;
    bool split_pairs;
    fl_token_request request; /* all but its texts */
    fl_tokens tokens;
    size_t ids_room, types_room, spans_room;
} line_job;

/* ---- output ---- */

static void print_number(int32_t number)
{
    char text[12];
    int at = sizeof text;
    for (; number > 9; number /= 10) {
        text[--at] = (char)('0' + number % 10);
    }
    text[--at] = (char)('0' + number);
    fwrite(text + at, 1, sizeof text - (size_t)at, stdout);
}

static void print_json_text(const char *text)
{
    putchar('"');
    for (; *text != '\0'; text++) {
        if ((unsigned char)*text < 0x20 || *text == 0x7F) {
            printf("\\u%04x", (unsigned)*text);
        } else {
            if (*text == '"' || *text == '\\') {
                putchar('\\');
            }
            putchar(*text);
        }
    }
    putchar('"');
}

typedef void item_printer(const line_job *job, int64_t i);

static void print_id(const line_job *job, int64_t i)
{
    print_number(job->tokens.ids[i]);
}

static void print_type(const line_job *job, int64_t i)
{
    print_number(job->tokens.types[i]);
}

static void print_json_piece(const line_job *job, int64_t i)
{
    print_json_text(fl_tokenizer_piece(job->tokenizer, job->tokens.ids[i]));
}

static void print_span(const line_job *job, int64_t i)
{
    putchar('[');
    print_number(job->tokens.spans[i].begin);
    putchar(',');
    print_number(job->tokens.spans[i].end);
    putchar(']');
}

static void print_list(const line_job *job, const char *name, item_printer *print_item)
{
    printf("\"%s\":[", name);
    for (int64_t i = 0; i < job->tokens.n; i++) {
        if (i > 0) {
            putchar(',');
        }
        print_item(job, i);
    }
    putchar(']');
}

static void print_json(const line_job *job)
{
    putchar('{');
    print_list(job, "ids", print_id);
    putchar(',');
    print_list(job, "types", print_type);
    putchar(',');
    print_list(job, "pieces", print_json_piece);
    putchar(',');
    print_list(job, "spans", print_span);
    puts("}");
}

static void print_words(const line_job *job)
{
    for (int64_t i = 0; i < job->tokens.n; i++) {
        if (i > 0) {
            putchar(' ');
        }
        if (job->form == PRINT_IDS) {
            print_number(job->tokens.ids[i]);
        } else {
            fputs(fl_tokenizer_piece(job->tokenizer, job->tokens.ids[i]), stdout);
        }
    }
    putchar('\n');
}

/* ---- lines ---- */

static fl_status reserve_tokens(line_job *job, size_t n_bytes)
{
    fl_tokens *tokens = &job->tokens;
    int64_t n = fl_tokenizer_capacity(job->tokenizer, n_bytes);
    if (n <= tokens->capacity) {
        return FL_OK;
    }
    FL_TRY(fl_alloc_room((void **)&tokens->ids, 0, (size_t)n, sizeof *tokens->ids, &job->ids_room));
    if (job->form == PRINT_JSON) {
        FL_TRY(fl_alloc_room((void **)&tokens->types, 0, (size_t)n, sizeof *tokens->types,
                             &job->types_room));
        FL_TRY(fl_alloc_room((void **)&tokens->spans, 0, (size_t)n, sizeof *tokens->spans,
                             &job->spans_room));
    }
    tokens->capacity = n;
    return FL_OK;
}

static fl_status tokenize_line(line_job *job, const char *line, size_t n)
{
    const char *tab = job->split_pairs ? memchr(line, '\t', n) : NULL;
    job->request.text = (fl_text){.bytes = line, .n_bytes = tab == NULL ? n : (size_t)(tab - line)};
    job->request.pair = (fl_text){0};
    if (job->split_pairs) {
        if (tab == NULL) {
            return fl_fail(FL_EFORMAT, "no tab, allowed with --pairs: two texts and a tab between");
        }
        job->request.pair =
            (fl_text){.bytes = tab + 1, .n_bytes = n - job->request.text.n_bytes - 1};
    }
    FL_TRY(reserve_tokens(job, n));
    FL_TRY(fl_tokenizer_encode(job->tokenizer, job->scratch, &job->request, &job->tokens));
    if (job->form == PRINT_JSON) {
        print_json(job);
    } else {
        print_words(job);
    }
    return FL_OK;
}

enum { CHUNK_BYTES = 1 << 16 };

/* Standard input as it comes. The bytes of a line that has no end yet are at the front of `bytes`.
 */
typedef struct line_input {
    char *bytes;
    size_t n, room;
    int64_t line; /* the number of the next one */
} line_input;

/* Each line that is complete; at the end of the input, also the last one without a line feed. */
static fl_status tokenize_lines(line_job *job, line_input *in, size_t scanned, bool last)
{
    size_t at = 0;
    while (at < in->n) {
        size_t from = scanned > at ? scanned : at; /* no line feed before it */
        const char *end = memchr(in->bytes + from, '\n', in->n - from);
        if (end == NULL && !last) {
            break;
        }
        size_t n = (end == NULL ? in->n : (size_t)(end - in->bytes)) - at;
        fl_status status = tokenize_line(job, in->bytes + at, n);
        if (status != FL_OK) {
            return fl_within(status, "standard input: line %" PRId64, in->line);
        }
        in->line++;
        at += n + (end != NULL);
    }
    memmove(in->bytes, in->bytes + at, in->n - at);
    in->n -= at;
    if (in->n > FL_TEXT_BYTES_MAX) {
        return fl_fail(FL_EINVAL, "standard input: line %" PRId64 ": more than %d bytes", in->line,
                       FL_TEXT_BYTES_MAX);
    }
    return FL_OK;
}

static fl_status tokenize_input(line_job *job, line_input *in)
{
    for (bool last = false; !last;) {
        size_t before = in->n;
        FL_TRY(fl_alloc_room((void **)&in->bytes, in->n, CHUNK_BYTES, 1, &in->room));
        in->n += fread(in->bytes + in->n, 1, CHUNK_BYTES, stdin);
        if (ferror(stdin)) {
            return fl_fail(FL_EIO, "standard input: %s", strerror(errno));
        }
        last = feof(stdin) != 0;
        FL_TRY(tokenize_lines(job, in, before, last));
        if (ferror(stdout)) {
            return FL_OK; /* fl_main reports it */
        }
    }
    return FL_OK;
}

/* ---- the command ---- */

static fl_status read_limit(const fl_args *args, int64_t *max_tokens)
{
    const char *text = fl_args_value(args, "--max-tokens");
    char shown[FL_SHOWN_MAX], *end;
    if (text == NULL) {
        return FL_OK;
    }
    errno = 0;
    *max_tokens = strtoll(text, &end, 10);
    if (*end != '\0' || end == text || errno != 0 || *max_tokens < 1) {
        return fl_fail(FL_EINVAL, "--max-tokens: found %s, allowed: an integer from 1 up",
                       fl_shown(text, strlen(text), shown));
    }
    return FL_OK;
}

static fl_status read_options(const fl_args *args, line_job *job)
{
    job->split_pairs = fl_args_has(args, "--pairs");
    job->request.special = !fl_args_has(args, "--bare");
    job->form = fl_args_has(args, "--json")     ? PRINT_JSON
                : fl_args_has(args, "--pieces") ? PRINT_PIECES
                                                : PRINT_IDS;
    return read_limit(args, &job->request.max_tokens);
}

static fl_status tokenize_folder(const fl_args *args)
{
    line_job job = {0};
    line_input in = {.line = 1};
    fl_tokenizer *tokenizer = NULL;
    FL_TRY(read_options(args, &job));
    FL_TRY(fl_tokenizer_open(args->operand, &tokenizer));
    job.tokenizer = tokenizer;
    fl_status status = fl_token_scratch_create(tokenizer, &job.scratch);
    if (status == FL_OK) {
        status = tokenize_input(&job, &in);
    }
    fl_free(in.bytes);
    fl_free(job.tokens.ids);
    fl_free(job.tokens.types);
    fl_free(job.tokens.spans);
    fl_token_scratch_destroy(&job.scratch);
    fl_tokenizer_close(&tokenizer);
    return status;
}

static int run_tokenize(const fl_args *args)
{
    fl_status status = tokenize_folder(args);
    if (status != FL_OK) {
        fl_complain("%s", fl_errmsg());
    }
    return fl_exit_of(status);
}

const fl_cli_command fl_cli_command_tokenize = {
    .name = "tokenize",
    .operand = "DIR",
    .summary = "Print the token ids of each line of standard input.",
    .details = "DIR is a Hugging Face folder: its tokenizer.json, or its vocab.txt (WordPiece),\n"
               "or its vocab.json and merges.txt (byte-level BPE); and tokenizer_config.json, if\n"
               "it is there. The ids are those that Hugging Face's tokenizers give.\n\n"
               "  frostline tokenize minilm < sentences.txt\n"
               "  printf 'a question\\ta text\\n' | frostline tokenize minilm --pairs --json\n",
    .options = {{"--pieces", 0, NULL, "print the text of each token instead of its id"},
                {"--json", 0, NULL, "print an object a line: ids, types, pieces, spans"},
                {"--pairs", 0, NULL, "a line is two texts with a tab between them"},
                {"--bare", 0, NULL, "leave out what stands around texts, as [CLS] and [SEP]"},
                {"--max-tokens", 0, "N", "cut texts to N tokens, the longer one of a pair first"}},
    .run = run_tokenize,
};
