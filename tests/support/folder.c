#include "support/folder.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

const char *temporary(void)
{
    const char *parent = getenv("TMPDIR");
    return parent != NULL ? parent : "/tmp";
}

static void name_it(char path[FOLDER_SIZE])
{
    if (snprintf(path, FOLDER_SIZE, "%s/frostline-XXXXXX", temporary()) >= FOLDER_SIZE) {
        fprintf(stderr, "TMPDIR is too long: %s\n", temporary());
        abort();
    }
}

void make_folder(char path[FOLDER_SIZE])
{
    name_it(path);
    if (mkdtemp(path) == NULL) {
        perror(path);
        abort();
    }
}

void make_file(char path[FOLDER_SIZE], const void *bytes, size_t n)
{
    name_it(path);
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, bytes, n) != (ssize_t)n || close(fd) != 0) {
        perror(path);
        abort();
    }
}

static int remove_one(const char *path, const struct stat *info, int kind, struct FTW *place)
{
    (void)info, (void)kind, (void)place;
    return remove(path);
}

int remove_folder(const char *path)
{
    return nftw(path, remove_one, 16, FTW_DEPTH | FTW_PHYS | FTW_MOUNT);
}
