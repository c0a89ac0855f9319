#include "launcher/run/plugin_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool read_at(int fd, uint64_t offset, void *to, size_t n)
{
    return offset <= INT64_MAX && pread(fd, to, n, (off_t)offset) == (ssize_t)n;
}

static bool is_elf64(int fd, Elf64_Ehdr *header)
{
    return read_at(fd, 0, header, sizeof *header) &&
           memcmp(header->e_ident, ELFMAG, SELFMAG) == 0 &&
           header->e_ident[EI_CLASS] == ELFCLASS64 && header->e_phentsize == sizeof(Elf64_Phdr);
}

/* The first byte behind all segments; UINT64_MAX when it is beyond all numbers. */
static uint64_t end_of_segments(int fd, const Elf64_Ehdr *header)
{
    uint64_t end = header->e_phoff + header->e_phnum * sizeof(Elf64_Phdr);
    for (int i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr segment;
        if (!read_at(fd, header->e_phoff + (uint64_t)i * sizeof segment, &segment,
                     sizeof segment)) {
            return end;
        }
        uint64_t last = segment.p_offset + segment.p_filesz;
        if (last < segment.p_offset) {
            return UINT64_MAX;
        }
        end = segment.p_type == PT_LOAD && last > end ? last : end;
    }
    return end;
}

fl_status fl_plugin_check_file(const char *path)
{
    struct stat what;
    Elf64_Ehdr header;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        return FL_OK;
    }
    fl_status status = FL_OK;
    if (fstat(fd, &what) != 0 || !S_ISREG(what.st_mode)) {
        status = fl_fail(FL_EFORMAT, "%s: not a regular file", path);
    } else if (is_elf64(fd, &header)) {
        uint64_t end = end_of_segments(fd, &header);
        if (end > (uint64_t)what.st_size) {
            status = fl_fail(FL_EFORMAT,
                             "%s: %" PRId64 " bytes found, %" PRIu64
                             " expected: the file is cut off or damaged",
                             path, (int64_t)what.st_size, end);
        }
    }
    close(fd);
    return status;
}

bool fl_plugin_is_function(const void *symbol)
{
    Dl_info info;
    const Elf64_Sym *entry = NULL;
    bool known = dladdr1(symbol, &info, (void **)&entry, RTLD_DL_SYMENT) != 0 && entry != NULL;
    int type = known ? ELF64_ST_TYPE(entry->st_info) : STT_NOTYPE;
    return type == STT_FUNC || type == STT_GNU_IFUNC || type == STT_NOTYPE;
}

fl_status fl_plugin_check_data(const fl_dataset_ops *ops)
{
    const char *missing = ops->kind == NULL        ? "kind"
                          : ops->count == NULL     ? "count"
                          : ops->shape == NULL     ? "shape"
                          : ops->max_shape == NULL ? "max_shape"
                          : ops->read == NULL      ? "read"
                          : ops->targets == NULL   ? "targets"
                                                   : NULL;
    return missing == NULL ? FL_OK : fl_fail(FL_EFORMAT, "its data set's table has no %s", missing);
}
