#include "pipe/state/checkpoint/checkpoint_store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is shared, in one mapping. */
typedef struct shared {
    _Atomic int64_t kept_step;
    fl_checkpoint_kept_file kept[FL_CHECKPOINT_PARTS * FL_MAX_LAYERS];
} shared;

fl_checkpoint_kept_file *fl_checkpoint_kept(const fl_checkpoint_store *store,
                                            fl_checkpoint_part part, int layer)
{
    return &store->kept[(int)part * FL_MAX_LAYERS + layer];
}

static fl_status open_folder(int base_fd, const char *path, int *out)
{
    if (mkdirat(base_fd, path, 0777) != 0 && errno != EEXIST) {
        return fl_fail(FL_EIO, "cannot make the folder of checkpoints %s: %s", path,
                       strerror(errno));
    }
    *out = openat(base_fd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    return *out >= 0 ? FL_OK
                     : fl_fail(FL_EIO, "cannot open the folder of checkpoints %s: %s", path,
                               strerror(errno));
}

fl_status fl_checkpoint_store_open(int base_fd, const char *path, fl_checkpoint_store *out)
{
    *out = (fl_checkpoint_store){0};
    int fd = -1;
    shared *s = mmap(NULL, sizeof *s, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (s == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "no memory for what workers know of checkpoints");
    }
    fl_status status = open_folder(base_fd, path, &fd);
    if (status != FL_OK) {
        munmap(s, sizeof *s);
        return status;
    }
    *out = (fl_checkpoint_store){.dir_fd = fd, .kept_step = &s->kept_step, .kept = s->kept};
    atomic_store(out->kept_step, -1);
    return FL_OK;
}

void fl_checkpoint_store_close(fl_checkpoint_store *store)
{
    if (store->kept_step != NULL) {
        munmap((void *)store->kept_step, sizeof(shared)); /* the first member */
        close(store->dir_fd);
    }
    *store = (fl_checkpoint_store){0};
}
