/* Broken idx files, each with its whole message; files with a bit turned over, or cut. */
#include "data/idx.h"

#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "support/data/idx_images.h"

static const uint32_t label_dims[1] = {24};

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
        bytes b = idx_images();
        c->spoil(&b);
        b = c->gzip ? gzip_bytes(&b, 0) : b;
        c->spoil_packed(&b);
        write_file(folder, c->name, &b);
        char path[128], expected[512];
        snprintf(path, sizeof path, "%s/%s", folder, c->name);
        snprintf(expected, sizeof expected, "%s: %s", path, c->message);
        fl_idx idx = {0};
        assert_int_equal(idx_decode(path, b.at, b.n, 3, &idx), FL_EFORMAT);
        assert_string_equal(fl_errmsg(), expected);
        assert_int_equal(idx_read(path, 3, &idx), FL_EFORMAT);
        assert_string_equal(fl_errmsg(), expected);
        assert_null(idx.bytes);
        remove_file(folder, c->name);
    }
    rmdir(folder);
}

/* Every bit of a small file turned over, plain and packed: an error, or data of the size the header
 * states; packed, whose checksum covers the content, only the very same data. */
static void test_decode__survives_every_flipped_bit(void **state)
{
    (void)state;
    bytes plain = idx_images(), packed = gzip_bytes(&plain, 9);
    size_t n_refused = 0;
    for (size_t bit = 0; bit < 8 * packed.n; bit++) {
        bytes b = packed;
        fl_idx idx = {0};
        b.at[bit / 8] ^= (uint8_t)(1 << (bit % 8));
        fl_status status = idx_decode("flipped", b.at, b.n, 3, &idx);
        if (status == FL_OK) {
            assert_idx_images(&idx);
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
        fl_status status = idx_decode("flipped", b.at, b.n, 3, &idx);
        assert_int_equal(status, bit / 8 < 16 ? FL_EFORMAT : FL_OK);
        fl_idx_fini(&idx);
    }
}

/* Every length that is not the right one is refused, and nothing beyond the given bytes is read:
 * the copy on the heap is just as long, so that the sanitizer sees a read past its end. */
static void test_decode__refuses_every_shorter_file(void **state)
{
    (void)state;
    bytes plain = idx_images(), packed = gzip_bytes(&plain, 9);
    const bytes *both[] = {&plain, &packed};
    for (int k = 0; k < 2; k++) {
        for (size_t n = 0; n < both[k]->n; n++) {
            uint8_t *copy = malloc(n + 1);
            assert_non_null(copy);
            memcpy(copy, both[k]->at, n);
            fl_idx idx = {0};
            assert_int_equal(idx_decode("short", copy, n, 3, &idx), FL_EFORMAT);
            free(copy);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decode__refuses_what_is_broken),
        cmocka_unit_test(test_decode__survives_every_flipped_bit),
        cmocka_unit_test(test_decode__refuses_every_shorter_file),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
