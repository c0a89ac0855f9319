#include "data/idx.h"

#include "device/system/alloc.h"

#include "support/data/idx_files.h"
#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>

#include <cmocka.h>

static const uint32_t image_dims[3] = {2, 3, 4};
static const uint32_t label_dims[1] = {24};

static bytes images(void)
{
    return idx_bytes(3, image_dims, 1, 251);
}

static void assert_images(const fl_idx *idx)
{
    bytes sound = images();
    assert_int_equal(idx->rank, 3);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(idx->dims[i], image_dims[i]);
    }
    assert_int_equal(idx->size_bytes, 24);
    assert_memory_equal(idx->bytes, sound.at + 16, 24);
}

static fl_status load(fl_status opened, fl_idx_file *file, fl_idx *out)
{
    FL_TRY(opened);
    fl_status status = fl_idx_load(file, out);
    fl_idx_close(file);
    return status;
}

static fl_status decode(const char *name, const void *at, size_t n, int rank, fl_idx *out)
{
    fl_idx_file file;
    return load(fl_idx_open_memory(name, at, n, rank, &file), &file, out);
}

static fl_status read_array(const char *path, int rank, fl_idx *out)
{
    fl_idx_file file;
    return load(fl_idx_open(path, rank, &file), &file, out);
}

static void test_decode__reads_plain_and_gzip(void **state)
{
    (void)state;
    bytes plain = images(), packed = gzip_bytes(&plain, 9);
    fl_idx idx = {0};
    assert_int_equal(decode("plain", plain.at, plain.n, 3, &idx), FL_OK);
    assert_images(&idx);
    fl_idx_fini(&idx);
    assert_null(idx.bytes);
    assert_int_equal(decode("packed.gz", packed.at, packed.n, 3, &idx), FL_OK);
    assert_images(&idx);
    fl_idx_fini(&idx);
}

/* Content of more than one chunk of the reader, whose borders would be where bytes get lost. */
static void test_read__joins_chunks(void **state)
{
    (void)state;
    enum { SIDE = 500, N = SIDE * SIDE };
    char folder[FOLDER_SIZE], path[128];
    make_folder(folder);
    snprintf(path, sizeof path, "%s/big", folder);
    gzFile file = gzopen(path, "wb1");
    const uint8_t header[] = {0, 0, 8, 2, 0, 0, 1, 0xF4, 0, 0, 1, 0xF4};
    gzwrite(file, header, sizeof header);
    uint32_t x = 1;
    for (int i = 0; i < N; i++) {
        x = x * 1664525 + 1013904223;
        gzputc(file, (int)(x >> 24));
    }
    assert_int_equal(gzclose(file), Z_OK);
    fl_idx idx = {0};
    assert_int_equal(read_array(path, 2, &idx), FL_OK);
    x = 1;
    for (int i = 0; i < N; i++) {
        x = x * 1664525 + 1013904223;
        assert_int_equal(idx.bytes[i], x >> 24);
    }
    fl_idx_fini(&idx);
    remove_file(folder, "big");
    rmdir(folder);
}

static void append(bytes *to, const bytes *part)
{
    memcpy(to->at + to->n, part->at, part->n);
    to->n += part->n;
}

/* A gzip file may be several members one after another, as `cat a.gz b.gz` and parallel packers
 * make them; a member may be empty, and a cut may lie within the header of the content. */
static void test_decode__joins_gzip_members(void **state)
{
    (void)state;
    bytes plain = images();
    for (size_t cut = 0; cut <= plain.n; cut++) {
        bytes first = {.n = cut}, second = {.n = plain.n - cut}, file = {0};
        memcpy(first.at, plain.at, cut);
        memcpy(second.at, plain.at + cut, plain.n - cut);
        first = gzip_bytes(&first, 9);
        second = gzip_bytes(&second, 0);
        append(&file, &first);
        append(&file, &second);
        fl_idx idx = {0};
        assert_int_equal(decode("members.gz", file.at, file.n, 3, &idx), FL_OK);
        assert_images(&idx);
        fl_idx_fini(&idx);
        file.at[first.n + second.n - 8] ^= 1; /* the checksum of the second */
        assert_int_equal(decode("members.gz", file.at, file.n, 3, &idx), FL_EFORMAT);
        file.n = first.n + 4; /* a second that is cut */
        assert_int_equal(decode("members.gz", file.at, file.n, 3, &idx), FL_EFORMAT);
    }
}

/* Members whose borders fall on, before and behind the border of the reader's chunks. */
static void test_read__joins_gzip_members_of_many_chunks(void **state)
{
    (void)state;
    enum { CHUNK = 64 * 1024, CONTENT = 3 * CHUNK };
    char folder[FOLDER_SIZE], path[128];
    make_folder(folder);
    snprintf(path, sizeof path, "%s/many", folder);
    for (int off = -20; off <= 20; off++) {
        const uint8_t header[] = {0, 0, 8, 1, 0, 3, 0, 0};
        bytes empty_part = {0}, empty_member = gzip_bytes(&empty_part, 9);
        static uint8_t rest[CONTENT];
        FILE *file = fopen(path, "wb");
        assert_non_null(file);
        gzFile part = gzdopen(dup(fileno(file)), "wb0");
        gzwrite(part, header, sizeof header);
        /* Stored as it is, with 18 bytes around it and 5 to each block: so long that the member
         * ends near the chunk's end. */
        gzwrite(part, rest, (unsigned)(CHUNK - 50 + off));
        gzclose(part);
        fseek(file, 0, SEEK_END);
        fwrite(empty_member.at, 1, empty_member.n, file);
        fflush(file);
        part = gzdopen(dup(fileno(file)), "ab9");
        gzwrite(part, rest, (unsigned)(CONTENT - (CHUNK - 50 + off)));
        gzclose(part);
        fclose(file);
        fl_idx idx = {0};
        assert_int_equal(read_array(path, 1, &idx), FL_OK);
        assert_int_equal(idx.size_bytes, CONTENT);
        fl_idx_fini(&idx);
    }
    remove_file(folder, "many");
    rmdir(folder);
}

/* ---- broken files, each with its whole message ---- */

typedef struct broken {
    const char *name;
    void (*spoil)(bytes *b); /* what is done to a sound, plain images file */
    bool gzip;               /* packed afterwards */
    void (*spoil_packed)(bytes *b);
    const char *message; /* after the name */
} broken;

static void nothing(bytes *b)
{
    (void)b;
}

static void empty(bytes *b)
{
    b->n = 0;
}

static void one_byte(bytes *b)
{
    b->n = 1;
}

static void text(bytes *b)
{
    b->n = (size_t)sprintf((char *)b->at, "hello, this is text");
}

static void wrong_magic(bytes *b)
{
    b->at[1] = 7;
}

static void float_type(bytes *b)
{
    b->at[2] = 0x0D;
}

static void short_type(bytes *b)
{
    b->at[2] = 0x0B;
}

static void unknown_type(bytes *b)
{
    b->at[2] = 0x42;
}

static void labels(bytes *b)
{
    *b = idx_bytes(1, label_dims, 0, 10);
}

static void rank_2(bytes *b)
{
    b->at[3] = 2;
}

static void rank_255(bytes *b)
{
    b->at[3] = 255;
}

static void cut_in_magic(bytes *b)
{
    b->n = 3;
}

static void cut_in_dims(bytes *b)
{
    b->n = 10;
}

static void header_only(bytes *b)
{
    b->n = 16;
}

static void cut_in_data(bytes *b)
{
    b->n -= 5;
}

static void one_more(bytes *b)
{
    b->at[b->n++] = 0;
}

static void no_images(bytes *b)
{
    b->at[7] = 0;
}

static void no_width(bytes *b)
{
    b->at[15] = 0;
}

static void more_images(bytes *b)
{
    b->at[7] = 3;
}

static void largest_dims(bytes *b)
{
    memset(b->at + 4, 0xFF, 12);
}

/* 2^32 / 4 x 2 x 4 wraps to 0 in 32 bits, and 2^31 x 2^31 x 4 to 0 in 64. */
static void wraps_in_32_bits(bytes *b)
{
    const uint8_t dims[12] = {0x20, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 4};
    memcpy(b->at + 4, dims, 12);
}

static void wraps_in_64_bits(bytes *b)
{
    const uint8_t dims[12] = {0x80, 0, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 4};
    memcpy(b->at + 4, dims, 12);
}

static void a_million_images(bytes *b)
{
    b->at[5] = 0x10;
}

static void cut_in_half(bytes *b)
{
    b->n /= 2;
}

static void cut_in_gzip_header(bytes *b)
{
    b->n = 5;
}

static void cut_checksum(bytes *b)
{
    b->n -= 8;
}

static void wrong_checksum(bytes *b)
{
    b->at[b->n - 8] ^= 1;
}

static void wrong_length(bytes *b)
{
    b->at[b->n - 1] ^= 1;
}

static void wrong_method(bytes *b)
{
    b->at[2] = 9;
}

static void wrong_block(bytes *b)
{
    b->at[10] |= 6;
}

static void padded(bytes *b)
{
    memset(b->at + b->n, 0, 3);
    b->n += 3;
}

static void false_member(bytes *b)
{
    b->at[b->n++] = 0x1f;
    b->at[b->n++] = 0x8c;
}

static const broken all_broken[] = {
    {"a", empty, false, nothing, "byte 0: the end found, a header of 16 bytes expected"},
    {"a.gz", empty, false, nothing, "byte 0: the end of the file found, gzip's 0x1f 0x8b expected"},
    {"a.gz", one_byte, false, nothing,
     "byte 1: the end of the file found, gzip's 0x1f 0x8b expected"},
    {"a.gz", text, false, nothing, "byte 0: 0x68 0x65 found, gzip's 0x1f 0x8b expected"},
    {"a.gz", nothing, false, nothing, "byte 0: 0x00 0x00 found, gzip's 0x1f 0x8b expected"},
    {"a", text, false, nothing, "byte 0: 0x68 0x65 found, 0x00 0x00 expected: not an idx file"},
    {"a", wrong_magic, false, nothing,
     "byte 0: 0x00 0x07 found, 0x00 0x00 expected: not an idx file"},
    {"a.gz", wrong_magic, true, nothing,
     "byte 0 of the unpacked data: 0x00 0x07 found, 0x00 0x00 expected: not an idx file"},
    {"a", float_type, false, nothing,
     "byte 2: type 0x0d (float) found, 0x08 (unsigned byte) expected"},
    {"a", short_type, false, nothing,
     "byte 2: type 0x0b (16-bit integer) found, 0x08 (unsigned byte) expected"},
    {"a.gz", unknown_type, true, nothing,
     "byte 2 of the unpacked data: type 0x42 found, 0x08 (unsigned byte) expected"},
    {"a", labels, false, nothing,
     "byte 3: rank 1 (labels) found, 3 (images x height x width) expected"},
    {"a", rank_2, false, nothing, "byte 3: rank 2 found, 3 (images x height x width) expected"},
    {"a.gz", rank_255, true, nothing,
     "byte 3 of the unpacked data: rank 255 found, 3 (images x height x width) expected"},
    {"a", cut_in_magic, false, nothing, "byte 3: the end found, a header of 16 bytes expected"},
    {"a", cut_in_dims, false, nothing, "byte 10: the end found, a header of 16 bytes expected"},
    {"a.gz", cut_in_dims, true, nothing,
     "byte 10 of the unpacked data: the end found, a header of 16 bytes expected"},
    {"a", header_only, false, nothing,
     "byte 4: dimensions 2 x 3 x 4 (24 bytes) found, at most 0 bytes expected in a file of 16"},
    {"a", cut_in_data, false, nothing,
     "byte 4: dimensions 2 x 3 x 4 (24 bytes) found, at most 19 bytes expected in a file of 35"},
    {"a.gz", cut_in_data, true, nothing,
     "byte 35 of the unpacked data: the end found, 5 more bytes expected (dimensions 2 x 3 x 4)"},
    {"a", one_more, false, nothing, "byte 40: trailing data found, the end expected"},
    {"a.gz", one_more, true, nothing,
     "byte 40 of the unpacked data: trailing data found, the end expected"},
    {"a", no_images, false, nothing, "byte 4: dimension 0 is 0, at least 1 expected"},
    {"a.gz", no_width, true, nothing,
     "byte 12 of the unpacked data: dimension 2 is 0, at least 1 expected"},
    {"a", more_images, false, nothing,
     "byte 4: dimensions 3 x 3 x 4 (36 bytes) found, at most 24 bytes expected in a file of 40"},
    {"a", largest_dims, false, nothing,
     "byte 4: dimensions 4294967295 x 4294967295 x 4294967295 found, at most 17592186044416 bytes "
     "in "
     "all expected"},
    {"a", wraps_in_32_bits, false, nothing,
     "byte 4: dimensions 536870912 x 2 x 4 (4294967296 bytes) found, at most 24 bytes expected in "
     "a file of 40"},
    {"a.gz", wraps_in_64_bits, true, nothing,
     "byte 4 of the unpacked data: dimensions 2147483648 x 2147483648 x 4 found, at most "
     "17592186044416 bytes in all expected"},
    {"a.gz", a_million_images, true, nothing,
     "byte 4 of the unpacked data: dimensions 1048578 x 3 x 4 (12582936 bytes) found, at most "
     "65016 bytes expected in a file of 63"},
    {"a.gz", nothing, true, cut_in_half,
     "byte 31: the end of the file found, more gzip data expected (16 bytes "
     "unpacked so far)"},
    {"a.gz", nothing, true, cut_in_gzip_header,
     "byte 5: the end of the file found, more gzip data expected (0 bytes unpacked so far)"},
    {"a.gz", nothing, true, cut_checksum,
     "byte 55: the end of the file found, more gzip data expected (40 bytes unpacked so "
     "far)"},
    {"a.gz", nothing, true, wrong_checksum,
     "byte 59: damaged gzip data found (incorrect data check)"},
    {"a.gz", nothing, true, wrong_length,
     "byte 63: damaged gzip data found (incorrect length check)"},
    {"a.gz", nothing, true, wrong_method,
     "byte 4: damaged gzip data found (unknown compression method)"},
    {"a.gz", nothing, true, wrong_block, "byte 11: damaged gzip data found (invalid block type)"},
    {"a.gz", nothing, true, false_member,
     "byte 65: damaged gzip data found (incorrect header check)"},
    {"a.gz", nothing, true, padded,
     "byte 63: trailing bytes found after the gzip data, the end of the file expected"},
};

/* Both ways in must say the same: from memory, and from the file of these bytes. */
static void test_decode__refuses_what_is_broken(void **state)
{
    (void)state;
    char folder[FOLDER_SIZE];
    make_folder(folder);
    for (size_t i = 0; i < sizeof all_broken / sizeof *all_broken; i++) {
        const broken *c = &all_broken[i];
        bytes b = images();
        c->spoil(&b);
        b = c->gzip ? gzip_bytes(&b, 0) : b;
        c->spoil_packed(&b);
        write_file(folder, c->name, &b);
        char path[128], expected[512];
        snprintf(path, sizeof path, "%s/%s", folder, c->name);
        snprintf(expected, sizeof expected, "%s: %s", path, c->message);
        fl_idx idx = {0};
        assert_int_equal(decode(path, b.at, b.n, 3, &idx), FL_EFORMAT);
        assert_string_equal(fl_errmsg(), expected);
        assert_int_equal(read_array(path, 3, &idx), FL_EFORMAT);
        assert_string_equal(fl_errmsg(), expected);
        assert_null(idx.bytes);
        remove_file(folder, c->name);
    }
    rmdir(folder);
}

/* Files that cannot be read at all. A named pipe would catch an open that waits for ever. */
static void test_read__says_why_a_file_cannot_be_read(void **state)
{
    (void)state;
    char folder[FOLDER_SIZE], path[128], expected[256];
    fl_idx idx = {0};
    make_folder(folder);
    snprintf(path, sizeof path, "%s/missing", folder);
    snprintf(expected, sizeof expected, "%s: No such file or directory", path);
    assert_int_equal(read_array(path, 3, &idx), FL_EIO);
    assert_string_equal(fl_errmsg(), expected);
    snprintf(expected, sizeof expected, "%s: a folder found, a file expected", folder);
    assert_int_equal(read_array(folder, 3, &idx), FL_EIO);
    assert_string_equal(fl_errmsg(), expected);
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(expected, sizeof expected, "%s: something that is not a file found, a file expected",
             path);
    assert_int_equal(read_array(path, 3, &idx), FL_EIO);
    assert_string_equal(fl_errmsg(), expected);
    remove_file(folder, "pipe");
    rmdir(folder);
}

/* Every bit of a small file turned over, plain and packed: an error, or data of the size the header
 * states; packed, whose checksum covers the content, only the very same data. */
static void test_decode__survives_every_flipped_bit(void **state)
{
    (void)state;
    bytes plain = images(), packed = gzip_bytes(&plain, 9);
    size_t n_refused = 0;
    for (size_t bit = 0; bit < 8 * packed.n; bit++) {
        bytes b = packed;
        fl_idx idx = {0};
        b.at[bit / 8] ^= (uint8_t)(1 << (bit % 8));
        fl_status status = decode("flipped", b.at, b.n, 3, &idx);
        if (status == FL_OK) {
            assert_images(&idx);
            fl_idx_fini(&idx);
        } else {
            assert_int_equal(status, FL_EFORMAT);
            n_refused++;
        }
    }
    assert_true(n_refused > 8 * (packed.n - 10));
    for (size_t bit = 0; bit < 8 * plain.n; bit++) {
        bytes b = plain;
        fl_idx idx = {0};
        b.at[bit / 8] ^= (uint8_t)(1 << (bit % 8));
        fl_status status = decode("flipped", b.at, b.n, 3, &idx);
        assert_int_equal(status, bit / 8 < 16 ? FL_EFORMAT : FL_OK);
        fl_idx_fini(&idx);
    }
}

/* Every length that is not the right one is refused, and nothing beyond the given bytes is read:
 * the copy on the heap is just as long, so that the sanitizer sees a read past its end. */
static void test_decode__refuses_every_shorter_file(void **state)
{
    (void)state;
    bytes plain = images(), packed = gzip_bytes(&plain, 9);
    const bytes *both[] = {&plain, &packed};
    for (int k = 0; k < 2; k++) {
        for (size_t n = 0; n < both[k]->n; n++) {
            uint8_t *copy = malloc(n + 1);
            assert_non_null(copy);
            memcpy(copy, both[k]->at, n);
            fl_idx idx = {0};
            assert_int_equal(decode("short", copy, n, 3, &idx), FL_EFORMAT);
            free(copy);
        }
    }
}

/* A header may not make us ask for memory that the file cannot fill: with every large allocation
 * refused, the answer is still about the file. */
static void test_decode__checks_before_it_allocates(void **state)
{
    (void)state;
    bytes b = images();
    memset(b.at + 4, 0x0F, 4);
    uint64_t before = fl_alloc_count();
    fl_idx idx = {0};
    assert_int_equal(decode("plain", b.at, b.n, 3, &idx), FL_EFORMAT);
    assert_int_equal(fl_alloc_count(), before);
}

/* Each allocation made to fail in turn: the failure comes back and nothing leaks (the sanitizer
 * would tell). */
static void test_read__survives_failing_allocations(void **state)
{
    (void)state;
    char folder[FOLDER_SIZE], path[128];
    make_folder(folder);
    bytes plain = images(), packed = gzip_bytes(&plain, 9);
    write_file(folder, "a.gz", &packed);
    snprintf(path, sizeof path, "%s/a.gz", folder);
    fl_status status = FL_ENOMEM;
    int n_failed = 0;
    for (uint64_t n = 1; status != FL_OK; n++) {
        fl_idx idx = {0};
        fl_alloc_fail_at(n);
        status = read_array(path, 3, &idx);
        fl_alloc_fail_at(0);
        assert_true(status == FL_OK || status == FL_ENOMEM);
        n_failed += status != FL_OK;
        fl_idx_fini(&idx);
    }
    assert_true(n_failed >= 3);
    remove_file(folder, "a.gz");
    rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode__reads_plain_and_gzip),
        cmocka_unit_test(test_read__joins_chunks),
        cmocka_unit_test(test_decode__joins_gzip_members),
        cmocka_unit_test(test_read__joins_gzip_members_of_many_chunks),
        cmocka_unit_test(test_decode__refuses_what_is_broken),
        cmocka_unit_test(test_read__says_why_a_file_cannot_be_read),
        cmocka_unit_test(test_decode__survives_every_flipped_bit),
        cmocka_unit_test(test_decode__refuses_every_shorter_file),
        cmocka_unit_test(test_decode__checks_before_it_allocates),
        cmocka_unit_test(test_read__survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
