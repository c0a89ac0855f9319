/* Reads all files of a checkpoint: each thread takes the next file that no thread has taken. */
#include "control/checkpoint/manifest/manifest.h"

#include "device/errors/failure.h"
#include "device/system/alloc.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

enum { PIECE_BYTES = 4 * 1024 * 1024, THREADS_MAX = 16 };

typedef struct verification {
    const fl_checkpoint *checkpoint;
    const char *folder;
    int folder_fd;
    atomic_int next;   /* the next file */
    atomic_bool ended; /* a file differs: read no further one */
    pthread_mutex_t lock;
    int first;          /* the first file that differs; n_files: none */
    fl_failure failure; /* why */
} verification;

static fl_status fail_at(const verification *v, const fl_checkpoint_entry *entry, int error)
{
    return fl_fail(FL_EIO, "%s/%s: %s", v->folder, entry->name, strerror(error));
}

static fl_status check_size(const verification *v, const fl_checkpoint_entry *entry, int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0) {
        return fail_at(v, entry, errno);
    }
    if (!S_ISREG(st.st_mode) || st.st_size != entry->bytes) {
        return fl_fail(FL_EFORMAT, "%s/%s: damaged: %lld bytes, the manifest has %" PRId64,
                       v->folder, entry->name, (long long)st.st_size, entry->bytes);
    }
    return FL_OK;
}

static fl_status check_bytes(const verification *v, const fl_checkpoint_entry *entry, int fd,
                             XXH64_state_t *hash, char *piece)
{
    ssize_t n;
    XXH64_reset(hash, 0);
    (void)posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
    while ((n = read(fd, piece, PIECE_BYTES)) != 0) {
        if (n < 0 && errno != EINTR) {
            return fail_at(v, entry, errno);
        }
        XXH64_update(hash, piece, n < 0 ? 0 : (size_t)n);
    }
    uint64_t found = XXH64_digest(hash);
    return found == entry->xxh64
               ? FL_OK
               : fl_fail(FL_EFORMAT,
                         "%s/%s: damaged: its hash is %016" PRIx64 ", the manifest has %016" PRIx64,
                         v->folder, entry->name, found, entry->xxh64);
}

static fl_status check_entry(const verification *v, const fl_checkpoint_entry *entry,
                             XXH64_state_t *hash, char *piece)
{
    int fd = openat(v->folder_fd, entry->name, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return fail_at(v, entry, errno);
    }
    fl_status status = check_size(v, entry, fd);
    if (status == FL_OK) {
        status = check_bytes(v, entry, fd, hash, piece);
    }
    close(fd);
    return status;
}

/* Which failure is reported does not depend on the threads' speed, except where several files
 * differ. */
static void note_failure(verification *v, int file, fl_status status)
{
    pthread_mutex_lock(&v->lock);
    if (file < v->first) {
        v->first = file;
        fl_failure_keep(&v->failure, status);
    }
    pthread_mutex_unlock(&v->lock);
    atomic_store(&v->ended, true);
}

static void *run_thread(void *context)
{
    verification *v = context;
    char *piece = NULL;
    int file = -1;
    XXH64_state_t *hash = XXH64_createState();
    fl_status status = hash == NULL ? fl_fail(FL_ENOMEM, "no memory to verify a checkpoint")
                                    : fl_alloc(PIECE_BYTES, (void **)&piece);
    while (status == FL_OK && !atomic_load(&v->ended) &&
           (file = atomic_fetch_add(&v->next, 1)) < v->checkpoint->n_files) {
        status = check_entry(v, &v->checkpoint->file[file], hash, piece);
    }
    if (status != FL_OK) {
        note_failure(v, file, status);
    }
    fl_free(piece);
    XXH64_freeState(hash);
    return NULL;
}

/* The caller's thread works, too: it does everything where no other thread can be made. */
static void run_threads(verification *v, int n_threads)
{
    pthread_t threads[THREADS_MAX];
    int n = 0;
    while (n < n_threads - 1 && n < THREADS_MAX && n < v->checkpoint->n_files - 1 &&
           pthread_create(&threads[n], NULL, run_thread, v) == 0) {
        n++;
    }
    run_thread(v);
    while (n > 0) {
        pthread_join(threads[--n], NULL);
    }
}

fl_status fl_checkpoint_verify(const fl_checkpoint *checkpoint, const char *folder, int n_threads)
{
    verification v = {.checkpoint = checkpoint,
                      .folder = folder,
                      .lock = PTHREAD_MUTEX_INITIALIZER,
                      .first = checkpoint->n_files};
    v.folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (v.folder_fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", folder, strerror(errno));
    }
    run_threads(&v, n_threads);
    close(v.folder_fd);
    return v.first < checkpoint->n_files ? fl_failure_raise(&v.failure) : FL_OK;
}
