/* Tokenized tables that are kept in files. Would catch: tokens of another table, tokenizer or
 * setting, a damaged file that is believed or that ends the run, a count in it that is allocated or
 * read beyond, and a file that is left half-written. */
#include "data/table/cache.h"
#include "data/table/table_dataset.h"

#include "support/folder.h"

#include <dirent.h>
#include <inttypes.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define BERT FL_SOURCE_DIR "/tests/reference/tokenizer/bert"
#define CASED FL_SOURCE_DIR "/tests/reference/tokenizer/cased"

enum { PATH_ROOM = 160, FILE_MAX = 4096, N_IDS = 100000 };

static char folder[FOLDER_SIZE], train[PATH_ROOM], test[PATH_ROOM], cache[PATH_ROOM];

static void write_bytes(const char *path, const void *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static size_t read_bytes(const char *path, unsigned char bytes[FILE_MAX])
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t n = fread(bytes, 1, FILE_MAX, file);
    assert_int_equal(fclose(file), 0);
    assert_in_range(n, 100, FILE_MAX - 1);
    return n;
}

static int make(void **state)
{
    static const char rows[] = "text\tb\tlabel\na good film\tit is\tyes\nno\tb c d\tno\n";
    static const char more[] = "text\tb\tlabel\nso\tso\tno\n";
    (void)state;
    make_folder(folder);
    snprintf(train, sizeof train, "%s/train.tsv", folder);
    snprintf(test, sizeof test, "%s/test.tsv", folder);
    snprintf(cache, sizeof cache, "%s/cache/deep", folder);
    write_bytes(train, rows, sizeof rows - 1);
    write_bytes(test, more, sizeof more - 1);
    return 0;
}

static int clean(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static fl_table_options options(void)
{
    return (fl_table_options){.path = {train, test},
                              .text = "text",
                              .pair = "b",
                              .label = "label",
                              .tokenizer = BERT,
                              .max_tokens = 16,
                              .types = true,
                              .cache = cache};
}

/* Whether the tokens came from the cache; *fingerprint: of the data set. */
static bool is_cached(const fl_table_options *o, uint64_t *fingerprint)
{
    fl_dataset d = {0};
    fl_table_info info;
    if (fl_dataset_table_open(o, &d, &info) != FL_OK) {
        fail_msg("%s", fl_errmsg());
    }
    *fingerprint = d.ops->fingerprint(d.self);
    assert_true(info.n_tokens > 0 && info.took_us >= 0);
    if (o->labels == NULL && o->path[FL_TEST] != NULL) {
        assert_int_equal(info.n_rows, 3);
        assert_int_equal(info.n_classes, 2);
        assert_string_equal(info.labels[0], "no");
        assert_string_equal(info.labels[1], "yes");
    }
    fl_dataset_destroy(&d);
    return info.from_cache;
}

/* The number of files in the cache, and the path of the last one. */
static int count_files(char path[PATH_MAX])
{
    int n = 0;
    DIR *dir = opendir(cache);
    assert_non_null(dir);
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (e->d_name[0] != '.') {
            snprintf(path, PATH_MAX, "%s/%s", cache, e->d_name);
            n++;
        }
    }
    closedir(dir);
    return n;
}

static void empty_cache(void)
{
    char path[PATH_MAX];
    while (count_files(path) > 0) {
        assert_int_equal(unlink(path), 0);
    }
}

static void test_cache__the_second_time_gives_the_same_tokens(void **state)
{
    (void)state;
    uint64_t first, second, bare;
    char path[PATH_MAX];
    struct stat st;
    fl_table_options o = options();
    assert_false(is_cached(&o, &first));
    assert_int_equal(count_files(path), 1);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_true(is_cached(&o, &second));
    assert_true(first == second);
    o.cache = NULL;
    assert_false(is_cached(&o, &bare));
    assert_true(first == bare);
}

static void test_cache__every_setting_has_tokens_of_its_own(void **state)
{
    (void)state;
    static const char *const labels[] = {"no", "yes"};
    static const char other_rows[] = "text\tb\tlabel\na good film\tit is\tyes\nno\tb c\tno\n";
    char other[PATH_ROOM], path[PATH_MAX];
    enum { N = 10 };
    fl_table_options o[N];
    uint64_t unused;
    for (int i = 0; i < N; i++) {
        o[i] = options();
    }
    snprintf(other, sizeof other, "%s/other.tsv", folder);
    write_bytes(other, other_rows, sizeof other_rows - 1);
    o[1].max_tokens = 12;
    o[2].types = false;
    o[3].text = "b";
    o[4].pair = NULL;
    o[5].labels = labels;
    o[5].n_labels = 2;
    o[6].tokenizer = CASED;
    o[7].path[FL_TRAIN] = other;
    o[8].path[FL_TEST] = NULL;
    o[9].path[FL_TRAIN] = test;
    o[9].path[FL_TEST] = NULL;
    empty_cache();
    for (int i = 0; i < N; i++) {
        assert_false(is_cached(&o[i], &unused));
        assert_int_equal(count_files(path), i + 1);
    }
    for (int i = 0; i < N; i++) {
        assert_true(is_cached(&o[i], &unused));
    }
}

/* ---- damage ---- */

static fl_kept_key key_in(const char *path)
{
    fl_kept_key key;
    const char *name = strrchr(path, '/') + sizeof "/tokens-" - 1;
    assert_int_equal(sscanf(name, "%16" SCNx64 "%16" SCNx64, &key.hash[0], &key.hash[1]), 2);
    return key;
}

static fl_status read_cache(const char *path, int32_t n_ids)
{
    fl_table_tokens tokens = {0};
    bool found = false;
    fl_kept_key key = key_in(path);
    fl_status status = fl__table_cache_read(path, &key, n_ids, true, &tokens, &found);
    assert_true(found);
    fl__table_tokens_fini(&tokens);
    return status;
}

static size_t make_file_of_tokens(char path[PATH_MAX], unsigned char bytes[FILE_MAX])
{
    uint64_t unused;
    fl_table_options o = options();
    empty_cache();
    assert_false(is_cached(&o, &unused));
    assert_int_equal(count_files(path), 1);
    assert_int_equal(read_cache(path, N_IDS), FL_OK);
    return read_bytes(path, bytes);
}

static void test_cache__refuses_every_changed_byte_and_every_cut(void **state)
{
    (void)state;
    char path[PATH_MAX];
    unsigned char bytes[FILE_MAX];
    size_t n = make_file_of_tokens(path, bytes);
    for (size_t at = 0; at < n; at++) {
        bytes[at] ^= 1;
        write_bytes(path, bytes, n);
        bytes[at] ^= 1;
        assert_int_equal(read_cache(path, N_IDS), FL_EFORMAT);
        write_bytes(path, bytes, at);
        assert_int_equal(read_cache(path, N_IDS), FL_EFORMAT);
    }
    bytes[n] = 0;
    write_bytes(path, bytes, n + 1);
    assert_int_equal(read_cache(path, N_IDS), FL_EFORMAT);
    write_bytes(path, bytes, n);
    assert_int_equal(read_cache(path, N_IDS), FL_OK);
}

static void test_cache__a_damaged_file_is_made_again(void **state)
{
    (void)state;
    char path[PATH_MAX];
    unsigned char bytes[FILE_MAX], again[FILE_MAX];
    uint64_t first, second, third;
    fl_table_options o = options();
    size_t n = make_file_of_tokens(path, bytes);
    assert_true(is_cached(&o, &first));
    write_bytes(path, bytes, n / 2);
    assert_false(is_cached(&o, &second));
    assert_true(is_cached(&o, &third));
    assert_true(first == second && second == third);
    assert_int_equal(read_bytes(path, again), n);
    assert_memory_equal(bytes, again, n);
}

/* Where the header has the sizes of its parts, 8 bytes each: see data/tokens/kept.c. */
enum { PART_BYTES = 48 };

/* Sizes are checked before the hash, and before anything is allocated for them. */
static void check_size(const unsigned char *sound, size_t n, const char *path, size_t at,
                       int64_t value)
{
    unsigned char bytes[FILE_MAX];
    memcpy(bytes, sound, n);
    memcpy(bytes + at, &value, sizeof value);
    write_bytes(path, bytes, n);
    assert_int_equal(read_cache(path, N_IDS), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "its size is not that of its parts"));
}

static void test_cache__refuses_sizes_before_it_allocates(void **state)
{
    (void)state;
    static const int64_t values[] = {-1, 1, 3, INT64_C(1) << 40, INT64_MAX, INT64_MIN};
    static const size_t places[] = {PART_BYTES, PART_BYTES + 8, PART_BYTES + 24,
                                    PART_BYTES + 39 * 8};
    char path[PATH_MAX];
    unsigned char bytes[FILE_MAX];
    size_t n = make_file_of_tokens(path, bytes);
    for (size_t p = 0; p < sizeof places / sizeof *places; p++) {
        for (size_t v = 0; v < sizeof values / sizeof *values; v++) {
            check_size(bytes, n, path, places[p], values[v]);
        }
    }
}

/* What a file holds is written from tokens, so tokens that do not fit together give a file with a
 * right hash. */
static void check_tokens(const char *path, void (*spoil)(fl_table_tokens *tokens))
{
    fl_table_tokens tokens = {0};
    bool found;
    fl_kept_key key = key_in(path);
    assert_int_equal(fl__table_cache_read(path, &key, N_IDS, true, &tokens, &found), FL_OK);
    spoil(&tokens);
    assert_int_equal(fl__table_cache_write(path, &key, &tokens), FL_OK);
    fl__table_tokens_fini(&tokens);
    assert_int_equal(read_cache(path, N_IDS), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "rows that do not fit together"));
}

static void spoil_begin(fl_table_tokens *tokens)
{
    tokens->split[FL_TRAIN].tokens.begin[1] = 1000;
}

static void spoil_order(fl_table_tokens *tokens)
{
    tokens->split[FL_TRAIN].tokens.begin[1] = 0; /* a sample without a token */
}

static void spoil_first(fl_table_tokens *tokens)
{
    tokens->split[FL_TRAIN].tokens.begin[0] = -1;
}

static void spoil_id(fl_table_tokens *tokens)
{
    tokens->split[FL_TEST].tokens.ids[1] = N_IDS;
}

static void spoil_label(fl_table_tokens *tokens)
{
    tokens->split[FL_TEST].labels[0] = 2;
}

static void spoil_low_label(fl_table_tokens *tokens)
{
    tokens->split[FL_TRAIN].labels[1] = -2;
}

static void test_cache__refuses_rows_that_do_not_fit_together(void **state)
{
    (void)state;
    void (*const spoils[])(fl_table_tokens *) = {spoil_begin, spoil_order, spoil_first,
                                                 spoil_id,    spoil_label, spoil_low_label};
    for (size_t i = 0; i < sizeof spoils / sizeof *spoils; i++) {
        char path[PATH_MAX];
        unsigned char bytes[FILE_MAX];
        make_file_of_tokens(path, bytes);
        check_tokens(path, spoils[i]);
    }
}

/* Neither a place that cannot be written nor one that cannot be read ends a run. */
static void test_cache__goes_on_without_a_folder(void **state)
{
    (void)state;
    char path[PATH_MAX];
    uint64_t first, second;
    fl_table_options o = options();
    o.cache = train; /* a file */
    assert_false(is_cached(&o, &first));
    assert_false(is_cached(&o, &second));
    assert_true(first == second);
    /* A folder in the file's place. */
    unsigned char bytes[FILE_MAX];
    make_file_of_tokens(path, bytes);
    assert_int_equal(unlink(path), 0);
    assert_int_equal(mkdir(path, 0700), 0);
    o = options();
    assert_false(is_cached(&o, &first));
    assert_int_equal(rmdir(path), 0);
    assert_int_equal(count_files(path), 0); /* no part of a file either */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_cache__the_second_time_gives_the_same_tokens),
        cmocka_unit_test(test_cache__every_setting_has_tokens_of_its_own),
        cmocka_unit_test(test_cache__refuses_every_changed_byte_and_every_cut),
        cmocka_unit_test(test_cache__a_damaged_file_is_made_again),
        cmocka_unit_test(test_cache__refuses_sizes_before_it_allocates),
        cmocka_unit_test(test_cache__refuses_rows_that_do_not_fit_together),
        cmocka_unit_test(test_cache__goes_on_without_a_folder),
    };
    return cmocka_run_group_tests(tests, make, clean);
}
