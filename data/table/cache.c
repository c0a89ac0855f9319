/* The file, in the machine's own byte order (a file of another machine has another magic):
 *
 *     header (1) | training: begin [n + 1], labels [n], ids, types (2) | test: the same |
 *     labels, each with a zero behind it (3)
 *
 * The hash in the header covers the header's other fields and all that follows. */
#include "data/table/cache.h"

#include "data/table/table_dataset.h"
#include "device/alloc.h"
#include "device/folders.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { N_SPLITS = 2, VERSION = 1 };

static const uint64_t magic = UINT64_C(0x464C5F544F4B454E); /* "FL_TOKEN" */

/* (1) Fields of 8 bytes each, so that there is no gap. */
typedef struct cache_header {
    uint64_t magic, version;
    uint64_t hash; /* of the bytes from here to the end of the file */
    fl_table_key key;
    int64_t n_rows[N_SPLITS], n_tokens[N_SPLITS];
    int64_t has_types, has_labels;
    int64_t n_labels, label_bytes;
} cache_header;

enum { HASHED_FROM = offsetof(cache_header, key) };

void fl__table_tokens_fini(fl_table_tokens *tokens)
{
    for (int s = 0; s < N_SPLITS; s++) {
        fl__table_split_fini(&tokens->split[s]);
    }
    fl__table_labels_fini(&tokens->labels);
}

bool fl__table_cache_path(const char *folder, const fl_table_key *key, char *path)
{
    int n = snprintf(path, PATH_MAX, "%s/tokens-%016" PRIx64 "%016" PRIx64 ".bin", folder,
                     key->hash[0], key->hash[1]);
    return n > 0 && n < PATH_MAX;
}

/* ---- the parts of a file, the same for reading and writing ---- */

typedef struct cache_part {
    void **memory;
    size_t n_bytes;
} cache_part;

enum { PARTS_OF_SPLIT = 4, N_PARTS = N_SPLITS * PARTS_OF_SPLIT };

/* (2) */
static void list_parts(const cache_header *h, fl_table_split *split, cache_part parts[N_PARTS])
{
    for (int s = 0; s < N_SPLITS; s++) {
        size_t n = (size_t)h->n_rows[s], n_tokens = (size_t)h->n_tokens[s];
        cache_part *p = parts + s * PARTS_OF_SPLIT;
        size_t begins = n == 0 ? 0 : n + 1;
        p[0] = (cache_part){(void **)&split[s].begin, begins * sizeof *split[s].begin};
        p[1] = (cache_part){(void **)&split[s].labels, n * sizeof *split[s].labels};
        p[2] = (cache_part){(void **)&split[s].ids, n_tokens * sizeof *split[s].ids};
        p[3] = (cache_part){(void **)&split[s].types, h->has_types != 0 ? n_tokens : 0};
    }
}

static uint64_t hash_content(const cache_header *h, const cache_part *parts, const char *texts)
{
    uint64_t hash = XXH64((const char *)h + HASHED_FROM, sizeof *h - HASHED_FROM, 0);
    for (int i = 0; i < N_PARTS; i++) {
        hash = XXH64(*parts[i].memory, parts[i].n_bytes, hash);
    }
    return XXH64(texts, (size_t)h->label_bytes, hash);
}

/* ---- reading ---- */

static fl_status refuse_file(const char *path, const char *reason)
{
    return fl_fail(FL_EFORMAT, "%s: %s", path, reason);
}

static fl_status read_bytes(const char *path, int fd, void *to, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = read(fd, (char *)to + done, n - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return fl_fail(FL_EIO, "%s: %s", path,
                           got == 0 ? "it became shorter" : strerror(errno));
        }
        done += (size_t)got;
    }
    return FL_OK;
}

/* Every count fits the file, so that nothing is allocated for a count that is damaged. */
static bool counts_fit(const cache_header *h, int64_t file_bytes)
{
    const int64_t most = INT64_C(1) << 44; /* sums of such counts do not overflow */
    int64_t total = (int64_t)sizeof *h;
    const int64_t counts[] = {h->n_rows[0],   h->n_rows[1], h->n_tokens[0],
                              h->n_tokens[1], h->n_labels,  h->label_bytes};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        if (counts[i] < 0 || counts[i] > file_bytes || file_bytes > most) {
            return false;
        }
    }
    for (int s = 0; s < N_SPLITS; s++) {
        total += h->n_rows[s] * (int64_t)(sizeof(int64_t) + sizeof(int32_t));
        total += h->n_rows[s] > 0 ? (int64_t)sizeof(int64_t) : 0;
        total += h->n_tokens[s] * (int64_t)(sizeof(int32_t) + (h->has_types != 0 ? 1 : 0));
    }
    return total + h->label_bytes == file_bytes;
}

static fl_status read_header(const char *path, int fd, const fl_table_key *key, bool types,
                             cache_header *h)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    if (!S_ISREG(st.st_mode) || st.st_size < (off_t)sizeof *h) {
        return refuse_file(path, "too small for tokenized rows, or no file");
    }
    FL_TRY(read_bytes(path, fd, h, sizeof *h));
    if (h->magic != magic || h->version != VERSION) {
        return refuse_file(path, "no tokenized rows of this version");
    }
    if (memcmp(&h->key, key, sizeof *key) != 0 || (h->has_types != 0) != types) {
        return refuse_file(path, "the tokenized rows of another table");
    }
    return counts_fit(h, st.st_size) ? FL_OK
                                     : refuse_file(path, "its size is not that of its rows");
}

/* (3) The texts, one after another, become names. */
static fl_status take_labels(const char *path, const cache_header *h, const char *texts,
                             fl_table_labels *out)
{
    const char *names[FL_TABLE_CLASSES_MAX];
    size_t at = 0, n_bytes = (size_t)h->label_bytes;
    if (h->has_labels == 0) {
        return h->n_labels == 0 && n_bytes == 0 ? FL_OK : refuse_file(path, "labels of no column");
    }
    if (h->n_labels > FL_TABLE_CLASSES_MAX) {
        return refuse_file(path, "too many labels");
    }
    for (int64_t i = 0; i < h->n_labels; i++) {
        const char *end = memchr(texts + at, '\0', n_bytes - at);
        if (end == NULL) {
            return refuse_file(path, "a label without an end");
        }
        names[i] = texts + at;
        at = (size_t)(end - texts) + 1;
    }
    if (at != n_bytes) {
        return refuse_file(path, "text behind the labels");
    }
    return fl__table_labels_copy(path, names, (int)h->n_labels, out);
}

/* What all users of the arrays rely on. */
static bool is_sound(const cache_header *h, int s, const fl_table_split *split, int32_t n_ids)
{
    int64_t n = h->n_rows[s], n_tokens = h->n_tokens[s];
    if (n == 0) {
        return n_tokens == 0;
    }
    bool good = split->begin[0] == 0 && split->begin[n] == n_tokens;
    for (int64_t i = 0; i < n; i++) {
        good = good && split->begin[i + 1] > split->begin[i] && split->labels[i] >= -1 &&
               split->labels[i] < h->n_labels;
    }
    for (int64_t i = 0; i < n_tokens; i++) {
        good = good && split->ids[i] >= 0 && split->ids[i] < n_ids;
    }
    return good;
}

static fl_status read_parts(const char *path, int fd, const cache_header *h, int32_t n_ids,
                            fl_table_tokens *tokens, char *texts)
{
    cache_part parts[N_PARTS];
    list_parts(h, tokens->split, parts);
    for (int i = 0; i < N_PARTS; i++) {
        if (parts[i].n_bytes > 0) {
            FL_TRY(fl_alloc_untouched(parts[i].n_bytes, parts[i].memory));
            FL_TRY(read_bytes(path, fd, *parts[i].memory, parts[i].n_bytes));
        }
    }
    FL_TRY(read_bytes(path, fd, texts, (size_t)h->label_bytes));
    if (hash_content(h, parts, texts) != h->hash) {
        return refuse_file(path, "its hash is not that of its content");
    }
    for (int s = 0; s < N_SPLITS; s++) {
        tokens->split[s].n = h->n_rows[s];
        if (!is_sound(h, s, &tokens->split[s], n_ids)) {
            return refuse_file(path, "rows that do not fit together");
        }
    }
    return take_labels(path, h, texts, &tokens->labels);
}

static fl_status read_open_file(const char *path, int fd, const fl_table_key *key, int32_t n_ids,
                                bool types, fl_table_tokens *tokens)
{
    cache_header h;
    char *texts = NULL;
    FL_TRY(read_header(path, fd, key, types, &h));
    FL_TRY(fl_alloc((size_t)h.label_bytes, (void **)&texts));
    fl_status status = read_parts(path, fd, &h, n_ids, tokens, texts);
    fl_free(texts);
    return status;
}

fl_status fl__table_cache_read(const char *path, const fl_table_key *key, int32_t n_ids, bool types,
                               fl_table_tokens *out, bool *found)
{
    fl_table_tokens tokens = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    *found = fd >= 0;
    if (fd < 0) {
        return errno == ENOENT ? FL_OK : fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
    }
    fl_status status = read_open_file(path, fd, key, n_ids, types, &tokens);
    close(fd);
    if (status == FL_OK) {
        *out = tokens;
    } else {
        fl__table_tokens_fini(&tokens);
    }
    return status;
}

/* ---- writing ---- */

static cache_header header_of(const fl_table_key *key, const fl_table_tokens *tokens)
{
    cache_header h = {.magic = magic,
                      .version = VERSION,
                      .key = *key,
                      .has_labels = tokens->labels.names != NULL,
                      .n_labels = tokens->labels.n};
    for (int s = 0; s < N_SPLITS; s++) {
        const fl_table_split *split = &tokens->split[s];
        h.n_rows[s] = split->n;
        h.n_tokens[s] = split->n == 0 ? 0 : split->begin[split->n];
        h.has_types |= split->types != NULL;
    }
    for (int i = 0; h.has_labels && i < tokens->labels.n; i++) {
        h.label_bytes += (int64_t)strlen(tokens->labels.names[i]) + 1;
    }
    return h;
}

/* (3) */
static fl_status pack_labels(const cache_header *h, const fl_table_labels *labels, char **out)
{
    FL_TRY(fl_alloc((size_t)h->label_bytes, (void **)out));
    char *to = *out;
    for (int i = 0; i < labels->n; i++) {
        size_t n = strlen(labels->names[i]) + 1;
        memcpy(to, labels->names[i], n);
        to += n;
    }
    return FL_OK;
}

/* An array of a split without rows is NULL. */
static bool put_part(FILE *file, const void *bytes, size_t n)
{
    return n == 0 || fwrite(bytes, 1, n, file) == n;
}

static bool put_file(FILE *file, const fl_table_key *key, const fl_table_tokens *tokens)
{
    cache_part parts[N_PARTS];
    cache_header h = header_of(key, tokens);
    fl_table_split split[N_SPLITS] = {tokens->split[0], tokens->split[1]};
    size_t label_bytes = (size_t)h.label_bytes;
    char *texts = NULL;
    if (pack_labels(&h, &tokens->labels, &texts) != FL_OK) {
        errno = ENOMEM;
        return false;
    }
    list_parts(&h, split, parts);
    h.hash = hash_content(&h, parts, texts);
    bool good = fwrite(&h, sizeof h, 1, file) == 1;
    for (int i = 0; i < N_PARTS && good; i++) {
        good = put_part(file, *parts[i].memory, parts[i].n_bytes);
    }
    good = good && put_part(file, texts, label_bytes);
    fl_free(texts);
    return good;
}

static fl_status make_folder_of(const char *path)
{
    char folder[PATH_MAX], failed[PATH_MAX];
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    errno = fl_folders_make(folder, failed);
    return errno == 0 ? FL_OK : fl_fail(FL_EIO, "cannot make %s: %s", failed, strerror(errno));
}

/* Without fsync: what a loss of power leaves has another hash, and is made again. */
fl_status fl__table_cache_write(const char *path, const fl_table_key *key,
                                const fl_table_tokens *tokens)
{
    char beside[PATH_MAX];
    int n = snprintf(beside, sizeof beside, "%s.%ld", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof beside) {
        return fl_fail(FL_EIO, "the path %.64s... is too long", path);
    }
    FL_TRY(make_folder_of(path));
    int fd = open(beside, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "wb");
    if (file == NULL) {
        fl_status status = fl_fail(FL_EIO, "%s: %s", beside, strerror(errno));
        if (fd >= 0) {
            close(fd);
        }
        return status;
    }
    bool good = put_file(file, key, tokens);
    good = fclose(file) == 0 && good;
    if (!good || rename(beside, path) != 0) {
        fl_status status = fl_fail(FL_EIO, "%s: %s", path, strerror(errno));
        unlink(beside);
        return status;
    }
    return FL_OK;
}
