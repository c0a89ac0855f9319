/* Reading idx files: plain, packed, in pieces; what cannot be read at all. */
#include "data/idx.h"

#include "device/system/alloc.h"

#include "support/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <sys/stat.h>

#include <cmocka.h>

#include "support/data/idx_images.h"

static void test_decode__reads_plain_and_gzip(void **state)
{
    (void)state;
    bytes plain = idx_images(), packed = gzip_bytes(&plain, 9);
    fl_idx idx = {0};
    assert_int_equal(idx_decode("plain", plain.at, plain.n, 3, &idx), FL_OK);
    assert_idx_images(&idx);
    fl_idx_fini(&idx);
    assert_null(idx.bytes);
    assert_int_equal(idx_decode("packed.gz", packed.at, packed.n, 3, &idx), FL_OK);
    assert_idx_images(&idx);
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
    assert_int_equal(idx_read(path, 2, &idx), FL_OK);
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
    bytes plain = idx_images();
    for (size_t cut = 0; cut <= plain.n; cut++) {
        bytes first = {.n = cut}, second = {.n = plain.n - cut}, file = {0};
        memcpy(first.at, plain.at, cut);
        memcpy(second.at, plain.at + cut, plain.n - cut);
        first = gzip_bytes(&first, 9);
        second = gzip_bytes(&second, 0);
        append(&file, &first);
        append(&file, &second);
        fl_idx idx = {0};
        assert_int_equal(idx_decode("members.gz", file.at, file.n, 3, &idx), FL_OK);
        assert_idx_images(&idx);
        fl_idx_fini(&idx);
        file.at[first.n + second.n - 8] ^= 1; /* the checksum of the second */
        assert_int_equal(idx_decode("members.gz", file.at, file.n, 3, &idx), FL_EFORMAT);
        file.n = first.n + 4; /* a second that is cut */
        assert_int_equal(idx_decode("members.gz", file.at, file.n, 3, &idx), FL_EFORMAT);
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
        assert_int_equal(idx_read(path, 1, &idx), FL_OK);
        assert_int_equal(idx.size_bytes, CONTENT);
        fl_idx_fini(&idx);
    }
    remove_file(folder, "many");
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
    assert_int_equal(idx_read(path, 3, &idx), FL_EIO);
    assert_string_equal(fl_errmsg(), expected);
    snprintf(expected, sizeof expected, "%s: a folder found, a file expected", folder);
    assert_int_equal(idx_read(folder, 3, &idx), FL_EIO);
    assert_string_equal(fl_errmsg(), expected);
    snprintf(path, sizeof path, "%s/pipe", folder);
    assert_int_equal(mkfifo(path, 0600), 0);
    snprintf(expected, sizeof expected, "%s: something that is not a file found, a file expected",
             path);
    assert_int_equal(idx_read(path, 3, &idx), FL_EIO);
    assert_string_equal(fl_errmsg(), expected);
    remove_file(folder, "pipe");
    rmdir(folder);
}

/* A header may not make us ask for memory that the file cannot fill: with every large allocation
 * refused, the answer is still about the file. */
static void test_decode__checks_before_it_allocates(void **state)
{
    (void)state;
    bytes b = idx_images();
    memset(b.at + 4, 0x0F, 4);
    uint64_t before = fl_alloc_count();
    fl_idx idx = {0};
    assert_int_equal(idx_decode("plain", b.at, b.n, 3, &idx), FL_EFORMAT);
    assert_int_equal(fl_alloc_count(), before);
}

/* Each allocation made to fail in turn: the failure comes back and nothing leaks (the sanitizer
 * would tell). */
static void test_read__survives_failing_allocations(void **state)
{
    (void)state;
    char folder[FOLDER_SIZE], path[128];
    make_folder(folder);
    bytes plain = idx_images(), packed = gzip_bytes(&plain, 9);
    write_file(folder, "a.gz", &packed);
    snprintf(path, sizeof path, "%s/a.gz", folder);
    fl_status status = FL_ENOMEM;
    int n_failed = 0;
    for (uint64_t n = 1; status != FL_OK; n++) {
        fl_idx idx = {0};
        fl_alloc_fail_at(n);
        status = idx_read(path, 3, &idx);
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
        cmocka_unit_test(test_read__says_why_a_file_cannot_be_read),
        cmocka_unit_test(test_decode__checks_before_it_allocates),
        cmocka_unit_test(test_read__survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
