#include "pipe/state/checkpoint_store.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

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
    void *shared = mmap(NULL, sizeof *out->kept_step, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        return fl_fail(FL_ENOMEM, "no memory for what workers know of checkpoints");
    }
    fl_status status = open_folder(base_fd, path, &fd);
    if (status != FL_OK) {
        munmap(shared, sizeof *out->kept_step);
        return status;
    }
    *out = (fl_checkpoint_store){.dir_fd = fd, .kept_step = shared};
    atomic_store(out->kept_step, -1);
    return FL_OK;
}

void fl_checkpoint_store_close(fl_checkpoint_store *store)
{
    if (store->kept_step != NULL) {
        munmap(store->kept_step, sizeof *store->kept_step);
        close(store->dir_fd);
    }
    *store = (fl_checkpoint_store){0};
}
