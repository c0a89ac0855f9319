#include "data/images/load.h"

#include "device/errors/failure.h"
#include "device/machine/host_limits.h"
#include "device/system/alloc.h"
#include "device/system/files/regular_file.h"
#include "device/system/thread.h"

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { THREADS_MAX = 64 };

/* ---- one file ---- */

static fl_status read_bytes(int fd, const char *path, uint8_t *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = read(fd, bytes + done, n - done);
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            return fl_fail(FL_EIO, "%s: %s", path,
                           got < 0 ? strerror(errno) : "ends before its size");
        }
        done += (size_t)got;
    }
    return FL_OK;
}

static fl_status read_file(const char *path, uint8_t **bytes, size_t *n)
{
    const char *why = NULL;
    struct stat st;
    int fd = fl_regular_file_open(AT_FDCWD, path, &why);
    if (fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", path, why);
    }
    fl_status status = FL_OK;
    if (fstat(fd, &st) != 0 || st.st_size > FL_IMAGE_FILE_BYTES_MAX) {
        status = fl_fail(FL_EFORMAT, "%s: not a file of at most %d bytes", path,
                         FL_IMAGE_FILE_BYTES_MAX);
    } else {
        *n = (size_t)st.st_size;
        status = fl_alloc_untouched(*n + 1, (void **)bytes);
    }
    if (status == FL_OK) {
        status = read_bytes(fd, path, *bytes, *n);
    }
    close(fd);
    return status;
}

fl_status fl__image_load(const char *path, int channels, int64_t size, uint8_t *out, uint64_t *hash)
{
    uint8_t *bytes = NULL;
    fl_image image = {0};
    size_t n = 0;
    fl_status status = read_file(path, &bytes, &n);
    if (status == FL_OK) {
        status = fl_image_decode(path, bytes, n, &image);
    }
    if (status == FL_OK && hash != NULL) {
        *hash = XXH3_64bits(bytes, n);
    }
    fl_free(bytes);
    if (status == FL_OK) {
        status = fl_image_resize(&image, channels, size, out);
    }
    fl_image_fini(&image);
    return status;
}

/* ---- all of them ---- */

typedef struct load_pass {
    const fl_image_folder *folder;
    int channels;
    int64_t size;
    uint8_t *pixels;
    uint64_t *hash;
    atomic_llong next; /* the first file that no thread has taken */
    pthread_mutex_t lock;
    long long failed; /* the first file that failed; later ones are not wanted */
    fl_failure failure;
} load_pass;

static void note_failure(load_pass *p, long long i, fl_status status)
{
    pthread_mutex_lock(&p->lock);
    if (i < p->failed) {
        p->failed = i;
        fl_failure_keep(&p->failure, status);
    }
    pthread_mutex_unlock(&p->lock);
}

static bool is_wanted(load_pass *p, long long i)
{
    pthread_mutex_lock(&p->lock);
    bool wanted = i < p->failed;
    pthread_mutex_unlock(&p->lock);
    return wanted;
}

/* Files before one that failed are still read: theirs is the first message. */
static fl_status load_files(load_pass *p, uint8_t *room)
{
    const int64_t image_bytes = p->channels * p->size * p->size;
    for (;;) {
        long long i = atomic_fetch_add(&p->next, 1);
        if (!is_wanted(p, i)) {
            return FL_OK;
        }
        uint8_t *out = p->pixels == NULL ? room : p->pixels + i * image_bytes;
        fl_status status =
            fl__image_load(p->folder->path[i], p->channels, p->size, out, &p->hash[i]);
        if (status != FL_OK) {
            note_failure(p, i, status);
        }
    }
}

static void *run_thread(void *argument)
{
    load_pass *p = argument;
    uint8_t *room = NULL;
    fl_status status =
        fl_alloc_untouched((size_t)(p->channels * p->size * p->size), (void **)&room);
    status = status == FL_OK ? load_files(p, room) : status;
    if (status != FL_OK) {
        note_failure(p, -1, status);
    }
    fl_free(room);
    return NULL;
}

static int choose_threads(int64_t n_files, int n_threads)
{
    fl_host_limits machine;
    fl_host_limits_read("", &machine);
    int n = n_threads == 0 ? machine.processors : n_threads;
    n = n < THREADS_MAX ? n : THREADS_MAX;
    return n_files < n ? (int)n_files : n;
}

fl_status fl__images_load(const fl_image_folder *folder, int channels, int64_t size,
                          uint8_t *pixels, uint64_t *hash, int n_threads)
{
    load_pass p = {.folder = folder,
                   .channels = channels,
                   .size = size,
                   .pixels = pixels,
                   .hash = hash,
                   .failed = folder->n,
                   .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[THREADS_MAX];
    int n = choose_threads(folder->n, n_threads), n_started = 0;
    for (; n_started < n - 1; n_started++) {
        if (fl_thread_start(&threads[n_started], run_thread, &p, "a thread that decodes images") !=
            FL_OK) {
            break; /* those that there are do the work */
        }
    }
    run_thread(&p);
    for (int i = 0; i < n_started; i++) {
        pthread_join(threads[i], NULL);
    }
    pthread_mutex_destroy(&p.lock);
    return fl_failure_raise(&p.failure);
}
