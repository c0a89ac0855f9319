/* Files of named tensors: what is written is read back, in every type; and whatever is wrong with a
 * file is refused with its name and what was found. */
#include "nn/safetensors/safetensors.h"
#include "support/folder.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[FOLDER_SIZE], path[128];

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    snprintf(path, sizeof path, "%s/model.safetensors", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    return remove_folder(folder);
}

static void write_bytes(const char *where, const void *bytes, size_t n)
{
    FILE *f = fopen(where, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(bytes, 1, n, f), n);
    assert_int_equal(fclose(f), 0);
}

/* A file with this header, however wrong, and n_data bytes of zeros behind it. */
static void write_file(const char *where, const char *header, size_t n_data)
{
    size_t n = strlen(header);
    unsigned char *bytes = calloc(8 + n + n_data, 1);
    assert_non_null(bytes);
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(n >> (8 * i));
    }
    memcpy(bytes + 8, header, n);
    write_bytes(where, bytes, 8 + n + n_data);
    free(bytes);
}

static const fl_st_spec specs[] = {
    {"blocks.1.attention.qkv.weight", 2, {3, 5}},
    {"empty", 1, {0}},
    {"blocks.1.attention.qkv.bias", 1, {3}},
    {"scale", 0, {0}},
};
enum { N_SPECS = sizeof specs / sizeof *specs };

static float element(int tensor, int64_t i)
{
    return (float)(tensor + 1) * 0.25f - (float)i * 1.5f;
}

static void write_model(fl_st_dtype dtype)
{
    fl_st_layout layout;
    const fl_st_pair metadata[] = {{"format", "pt"}};
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(fl_st_layout_init(&layout, dtype, specs, N_SPECS, metadata, 1), FL_OK);
    assert_int_equal(layout.header_bytes % 8, 0);
    assert_int_equal(fl_st_layout_create(&layout, fd, path), FL_OK);
    for (int t = N_SPECS - 1; t >= 0; t--) { /* any order, in pieces */
        for (int64_t i = 0; i < layout.n_elements[t]; i++) {
            float x = element(t, i);
            assert_int_equal(fl_st_layout_write(&layout, fd, path, t, i, 1, &x), FL_OK);
        }
    }
    assert_int_equal(lseek(fd, 0, SEEK_END), layout.total_bytes);
    close(fd);
    fl_st_layout_fini(&layout);
}

static void test_safetensors__reads_what_was_written(void **state)
{
    (void)state;
    static const fl_st_dtype dtypes[] = {FL_ST_F32, FL_ST_F16, FL_ST_BF16};
    for (int d = 0; d < 3; d++) {
        fl_safetensors *file = NULL;
        float got[15];
        write_model(dtypes[d]);
        assert_int_equal(fl_safetensors_open(d == 1 ? folder : path, &file), FL_OK);
        assert_int_equal(fl_safetensors_n(file), N_SPECS);
        assert_string_equal(fl_safetensors_at(file, 0)->name, "blocks.1.attention.qkv.bias");
        assert_string_equal(fl_safetensors_metadata(file, "format"), "pt");
        assert_null(fl_safetensors_metadata(file, "nothing"));
        assert_null(fl_safetensors_find(file, "blocks.1"));
        for (int t = 0; t < N_SPECS; t++) {
            const fl_st_tensor *tensor = fl_safetensors_find(file, specs[t].name);
            assert_non_null(tensor);
            assert_int_equal(tensor->dtype, dtypes[d]);
            assert_int_equal(tensor->n_dims, specs[t].n_dims);
            assert_int_equal(fl_safetensors_read(file, tensor, 0, tensor->n_elements, got), FL_OK);
            for (int64_t i = 0; i < tensor->n_elements; i++) {
                assert_true(got[i] == element(t, i)); /* these need no more than 8 bits */
            }
        }
        const fl_st_tensor *weight = fl_safetensors_find(file, specs[0].name);
        assert_int_equal(fl_safetensors_read(file, weight, 7, 3, got), FL_OK);
        assert_true(got[0] == element(0, 7));
        assert_int_equal(fl_safetensors_read(file, weight, 13, 3, got), FL_EINVAL);
        fl_safetensors_close(&file);
        assert_null(file);
    }
}

/* Every half there is comes back as itself; and what lies between two goes to the nearer, or to the
 * even one. */
static void test_safetensors__rounds_as_ieee_754_does(void **state)
{
    (void)state;
    static const struct {
        float from, to;
    } rounded[] = {
        {1.0f + 0x1p-11f, 1.0f}, /* a tie, to even */
        {1.0f + 0x1.8p-10f, 1.0f + 0x1p-9f},
        {1.0f + 0x1.001p-11f, 1.0f + 0x1p-10f},
        {65519.0f, 65504.0f},
        {65520.0f, INFINITY},
        {-1e9f, -INFINITY},
        {0x1p-24f, 0x1p-24f},
        {0x1p-25f, 0.0f},
        {0x1.01p-25f, 0x1p-24f},
        {0x1.8p-24f, 0x1p-23f},
        {-0x1.ff8p-15f, -0x1.ff8p-15f},
        {0x1.ffffp-15f, 0x1p-14f},
    };
    enum { N = sizeof rounded / sizeof *rounded };
    const fl_st_spec spec = {"x", 1, {N}};
    fl_st_layout layout;
    fl_safetensors *file = NULL;
    float from[N], to[N];
    for (int i = 0; i < N; i++) {
        from[i] = rounded[i].from;
    }
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(fl_st_layout_init(&layout, FL_ST_F16, &spec, 1, NULL, 0), FL_OK);
    assert_int_equal(fl_st_layout_create(&layout, fd, path), FL_OK);
    assert_int_equal(fl_st_layout_write(&layout, fd, path, 0, 0, N, from), FL_OK);
    assert_int_equal(fl_safetensors_open(path, &file), FL_OK);
    assert_int_equal(fl_safetensors_read(file, fl_safetensors_find(file, "x"), 0, N, to), FL_OK);
    for (int i = 0; i < N; i++) {
        if (to[i] != rounded[i].to) {
            fail_msg("%a became %a, expected %a", (double)from[i], (double)to[i],
                     (double)rounded[i].to);
        }
    }
    fl_safetensors_close(&file);
    fl_st_layout_fini(&layout);
    close(fd);
}

static void test_safetensors__every_half_is_itself(void **state)
{
    (void)state;
    enum { N = 65536 };
    const fl_st_spec spec = {"x", 1, {N}};
    fl_st_layout layout;
    fl_safetensors *file = NULL;
    uint16_t *half = malloc(N * sizeof *half), *back = malloc(N * sizeof *back);
    float *wide = malloc(N * sizeof *wide);
    assert_int_equal(fl_st_layout_init(&layout, FL_ST_F16, &spec, 1, NULL, 0), FL_OK);
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    assert_int_equal(fl_st_layout_create(&layout, fd, path), FL_OK);
    for (int i = 0; i < N; i++) {
        half[i] = (uint16_t)i;
    }
    assert_int_equal(pwrite(fd, half, N * sizeof *half, layout.header_bytes), N * sizeof *half);
    assert_int_equal(fl_safetensors_open(path, &file), FL_OK);
    assert_int_equal(fl_safetensors_read(file, fl_safetensors_find(file, "x"), 0, N, wide), FL_OK);
    assert_int_equal(fl_st_layout_write(&layout, fd, path, 0, 0, N, wide), FL_OK);
    assert_int_equal(pread(fd, back, N * sizeof *back, layout.header_bytes), N * sizeof *back);
    for (int i = 0; i < N; i++) {
        bool is_nan = (i & 0x7c00) == 0x7c00 && (i & 0x3ff) != 0;
        assert_true(is_nan
                        ? isnan(wide[i]) && (back[i] & 0x7c00) == 0x7c00 && (back[i] & 0x3ff) != 0
                        : back[i] == i);
    }
    assert_true(wide[0x3555] == 0x1.554p-2f); /* a third, as a half has it */
    assert_true(wide[0x0001] == 0x1p-24f);
    fl_safetensors_close(&file);
    fl_st_layout_fini(&layout);
    close(fd);
    free(half);
    free(back);
    free(wide);
}

/* ---- what is wrong ---- */

#define T(offsets) "{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":" offsets "}"

static const struct {
    const char *header;
    size_t n_data;
    const char *says;
} wrong[] = {
    {"", 0, "no valid JSON"},
    {"{", 0, "no valid JSON"},
    {"[]", 0, "no JSON object"},
    {"{\"a\":1}", 0, "dtype (none) is unknown"},
    {"{\"a\":{}}", 0, "dtype (none) is unknown"},
    {"{\"a\":{\"dtype\":\"F4\",\"shape\":[],\"data_offsets\":[0,0]}}", 0, "dtype F4 is unknown"},
    {"{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,0]}}", 0, "shape must be a list"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]}}", 4,
     "at most 8 sizes"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-1],\"data_offsets\":[0,4]}}", 4, "from 0 up"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4, "from 0 up"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,4]}}", 4,
     "more elements than any file"},
    {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4611686018427387904],\"data_offsets\":[0,4]}}", 4,
     "more elements than any file"},
    {"{\"a\":" T("[0]") "}", 8, "two integers"},
    {"{\"a\":" T("[0,8,9]") "}", 8, "two integers"},
    {"{\"a\":" T("[0,\"8\"]") "}", 8, "two integers"},
    {"{\"a\":" T("[8,0]") "}", 8, "do not lie within the 8 bytes"},
    {"{\"a\":" T("[-8,0]") "}", 8, "do not lie within"},
    {"{\"a\":" T("[0,16]") "}", 8, "do not lie within"},
    {"{\"a\":" T("[0,4]") "}", 8, "4 bytes, but its shape and dtype F32 make 8"},
    {"{\"a\":" T("[0,8]") ",\"a\":" T("[8,16]") "}", 16, "duplicate object key"},
    {"{\"a\":" T("[0,8]") ",\"b\":" T("[4,12]") "}", 12, "tensors overlap"},
    {"{\"a\":" T("[0,8]") ",\"b\":" T("[0,8]") "}", 8, "tensors overlap"},
    {"{\"a\":" T("[0,8]") ",\"b\":" T("[12,20]") "}", 20, "a gap"},
    {"{\"a\":" T("[4,12]") "}", 12, "a gap"},
    {"{\"a\":" T("[0,8]") "}", 9, "8 bytes, the file 9 of data"},
    {"{\"__metadata__\":[]}", 0, "an object of texts"},
    {"{\"__metadata__\":{\"n\":1}}", 0, "\"n\" is no text"},
    {"{\"a\\u0000b\":" T("[0,8]") "}", 8, "no valid JSON"},
    {"{\"a\\n\":" T("[0,8]") "}", 8, "tensor 0 of the header: a control character"},
    {"{\"a\xff\":" T("[0,8]") "}", 8, "no valid JSON"},
};

static void test_safetensors__refuses_a_wrong_header(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        fl_safetensors *file = NULL;
        write_file(path, wrong[i].header, wrong[i].n_data);
        assert_int_equal(fl_safetensors_open(path, &file), FL_EFORMAT);
        assert_null(file);
        if (strstr(fl_errmsg(), wrong[i].says) == NULL || strstr(fl_errmsg(), path) == NULL) {
            fail_msg("case %zu: \"%s\" lacks the file or \"%s\"", i, fl_errmsg(), wrong[i].says);
        }
    }
}

/* Cut at every length and flipped at every byte, a file is refused or still sound; never more. */
static void test_safetensors__survives_damage(void **state)
{
    (void)state;
    unsigned char bytes[2048];
    fl_safetensors *file = NULL;
    float got[15];
    write_model(FL_ST_F32);
    FILE *f = fopen(path, "rb");
    size_t n = fread(bytes, 1, sizeof bytes, f);
    fclose(f);
    assert_in_range(n, 100, sizeof bytes - 1);
    for (size_t cut = 0; cut < n; cut++) {
        write_bytes(path, bytes, cut);
        assert_int_equal(fl_safetensors_open(path, &file), FL_EFORMAT);
    }
    int n_sound = 0;
    for (size_t at = 0; at < n; at++) {
        for (int bit = 0; bit < 8; bit += 3) {
            bytes[at] ^= (unsigned char)(1 << bit);
            write_bytes(path, bytes, n);
            if (fl_safetensors_open(path, &file) == FL_OK) {
                n_sound++;
                for (int i = 0; i < fl_safetensors_n(file); i++) {
                    const fl_st_tensor *t = fl_safetensors_at(file, i);
                    int64_t some = t->n_elements < 15 ? t->n_elements : 15;
                    fl_status status = fl_safetensors_read(file, t, 0, some, got);
                    assert_true(status == FL_OK || status == FL_ENOTSUP);
                }
                fl_safetensors_close(&file);
            }
            bytes[at] ^= (unsigned char)(1 << bit);
        }
    }
    assert_true(n_sound > 0); /* a flipped element is another element */
}

static void test_safetensors__a_file_cut_while_open_is_an_error(void **state)
{
    (void)state;
    fl_safetensors *file = NULL;
    float got[15];
    write_model(FL_ST_F32);
    assert_int_equal(fl_safetensors_open(path, &file), FL_OK);
    assert_int_equal(truncate(path, 40), 0);
    assert_int_equal(
        fl_safetensors_read(file, fl_safetensors_find(file, specs[0].name), 0, 15, got), FL_EIO);
    fl_safetensors_close(&file);
}

/* Its length is the same, so only the time tells. */
static void test_safetensors__a_file_written_to_while_open_is_noticed(void **state)
{
    (void)state;
    fl_safetensors *file = NULL;
    const struct timespec times[2] = {{.tv_nsec = UTIME_OMIT}, {.tv_sec = 1000}};
    write_model(FL_ST_F32);
    assert_int_equal(utimensat(AT_FDCWD, path, times, 0), 0);
    assert_int_equal(fl_safetensors_open(path, &file), FL_OK);
    assert_int_equal(fl_safetensors_check_unchanged(file), FL_OK);
    int fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "xxxx", 4, 400), 4);
    close(fd);
    assert_int_equal(fl_safetensors_check_unchanged(file), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "was written to while it was read"));
    fl_safetensors_close(&file);
}

static void test_safetensors__other_types_are_named(void **state)
{
    (void)state;
    fl_safetensors *file = NULL;
    float got[1];
    write_file(path, "{\"ids\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]}}", 8);
    assert_int_equal(fl_safetensors_open(path, &file), FL_OK);
    assert_int_equal(fl_safetensors_read(file, fl_safetensors_at(file, 0), 0, 1, got), FL_ENOTSUP);
    assert_non_null(strstr(fl_errmsg(), "\"ids\" is I64"));
    fl_safetensors_close(&file);
}

static void test_safetensors__refuses_names_twice_when_writing(void **state)
{
    (void)state;
    fl_st_layout layout;
    const fl_st_spec twice[] = {{"a", 1, {1}}, {"a", 1, {1}}},
                     reserved[] = {{"__metadata__", 1, {1}}};
    assert_int_equal(fl_st_layout_init(&layout, FL_ST_F32, twice, 2, NULL, 0), FL_EINVAL);
    fl_st_layout_fini(&layout);
    assert_int_equal(fl_st_layout_init(&layout, FL_ST_F32, reserved, 1, NULL, 0), FL_EINVAL);
    fl_st_layout_fini(&layout);
    assert_int_equal(fl_st_layout_init(&layout, FL_ST_I64, twice, 1, NULL, 0), FL_EINVAL);
    fl_st_layout_fini(&layout);
}

/* ---- several files ---- */

static void in_folder(const char *name, char out[160])
{
    snprintf(out, 160, "%s/%s", folder, name);
}

static const struct {
    const char *index, *says;
} indices[] = {
    {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"2.safetensors\"}}", NULL},
    {"{\"weight_map\":{\"a\":\"1\\n.safetensors\"}}", "a control character"},
    {"{\"weight_map\":{\"a\\u001b\":\"1.safetensors\"}}", "tensor \"?\" is not in"},
    {"{}", "must have an object \"weight_map\""},
    {"{\"weight_map\":{\"a\":1}}", "names no file"},
    {"{\"weight_map\":{\"a\":\"../1.safetensors\"}}", "no name of a file beside it"},
    {"{\"weight_map\":{\"a\":\"/etc/passwd\"}}", "no name of a file beside it"},
    {"{\"weight_map\":{\"a\":\"3.safetensors\"}}", "cannot open"},
    {"{\"weight_map\":{\"a\":\"2.safetensors\",\"b\":\"1.safetensors\"}}", "is not in"},
    {"{\"weight_map\":{\"a\":\"1.safetensors\",\"c\":\"2.safetensors\"}}", "\"c\" is not in"},
    {"{\"weight_map\":{\"a\":\"1.safetensors\",\"b\":\"1.safetensors\"}}", "\"b\" is not in"},
    {"{\"weight_map\":{\"b\":\"2.safetensors\",\"a\":\"4.safetensors\"}}", "is in two files"},
    {"{\"weight_map\":{\"b\":\"4.safetensors\"}}", "which the index lacks"},
    {"nothing", "no valid JSON"},
};

static void test_safetensors__an_index_and_its_files_agree(void **state)
{
    (void)state;
    char at[160];
    in_folder("1.safetensors", at);
    write_file(at, "{\"a\":" T("[0,8]") "}", 8);
    in_folder("2.safetensors", at);
    write_file(at, "{\"b\":" T("[0,8]") "}", 8);
    in_folder("4.safetensors", at);
    write_file(at, "{\"a\":" T("[0,8]") ",\"b\":" T("[8,16]") "}", 16);
    in_folder("model.safetensors.index.json", at);
    remove(path);
    for (size_t i = 0; i < sizeof indices / sizeof *indices; i++) {
        fl_safetensors *file = NULL;
        write_bytes(at, indices[i].index, strlen(indices[i].index));
        fl_status status = fl_safetensors_open(i % 2 == 0 ? at : folder, &file);
        if (indices[i].says == NULL) {
            assert_int_equal(status, FL_OK);
            assert_int_equal(fl_safetensors_n(file), 2);
            fl_safetensors_close(&file);
        } else if (status == FL_OK || strstr(fl_errmsg(), indices[i].says) == NULL) {
            fail_msg("case %zu: %s", i, status == FL_OK ? "accepted" : fl_errmsg());
        }
    }
}

static void test_safetensors__names_what_cannot_be_opened(void **state)
{
    (void)state;
    fl_safetensors *file = NULL;
    char at[160];
    in_folder("none", at);
    assert_int_equal(fl_safetensors_open(at, &file), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), at));
    in_folder("pipe", at);
    assert_int_equal(mkfifo(at, 0600), 0);
    assert_int_equal(fl_safetensors_open(at, &file), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "no regular file"));
    remove(path);
    in_folder("model.safetensors.index.json", at);
    remove(at);
    assert_int_equal(fl_safetensors_open(folder, &file), FL_EIO);
    assert_non_null(strstr(fl_errmsg(), "holds neither model.safetensors nor"));
    in_folder("pytorch_model.bin", at);
    FILE *other = fopen(at, "w");
    assert_non_null(other);
    fclose(other);
    assert_int_equal(fl_safetensors_open(folder, &file), FL_EFORMAT);
    assert_non_null(strstr(fl_errmsg(), "/pytorch_model.bin: found, allowed: model.safetensors or "
                                        "model.safetensors.index.json. To convert it, call"));
    remove(at);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_safetensors__reads_what_was_written),
        cmocka_unit_test(test_safetensors__rounds_as_ieee_754_does),
        cmocka_unit_test(test_safetensors__every_half_is_itself),
        cmocka_unit_test(test_safetensors__refuses_a_wrong_header),
        cmocka_unit_test(test_safetensors__survives_damage),
        cmocka_unit_test(test_safetensors__a_file_cut_while_open_is_an_error),
        cmocka_unit_test(test_safetensors__a_file_written_to_while_open_is_noticed),
        cmocka_unit_test(test_safetensors__other_types_are_named),
        cmocka_unit_test(test_safetensors__refuses_names_twice_when_writing),
        cmocka_unit_test(test_safetensors__an_index_and_its_files_agree),
        cmocka_unit_test(test_safetensors__names_what_cannot_be_opened),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
