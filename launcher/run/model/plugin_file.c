#include "launcher/run/model/plugin_file.h"

#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

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

fl_status fl_plugin_print_file(const char *path, uint64_t *print)
{
    struct stat what;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    bool good = fd >= 0 && fstat(fd, &what) == 0 && what.st_size > 0;
    size_t n = good ? (size_t)what.st_size : 0;
    void *file = good ? mmap(NULL, n, PROT_READ, MAP_PRIVATE, fd, 0) : MAP_FAILED;
    fl_status status = FL_OK;
    if (file == MAP_FAILED) {
        status = fl_fail(FL_EIO, "%s: %s", path, good || fd < 0 ? strerror(errno) : "no content");
    } else {
        uint64_t hash = XXH3_64bits(file, n);
        *print = hash == 0 ? 1 : hash;
        munmap(file, n);
    }
    if (fd >= 0) {
        close(fd);
    }
    return status;
}

/* Plugins of version 1 export a function. */
enum { VERSION_OF_FUNCTIONS = 1 };

static fl_status other_version(uint32_t version)
{
    return fl_fail(FL_ENOTSUP,
                   "built for version %" PRIu32
                   " of Frostline's C API, this program has version %d: "
                   "compile it with this version's headers",
                   version, FL_API_VERSION);
}

/* Of the first four fields, which every version has; sizes of 0 are unknown. */
static bool has_magic(const void *symbol, const Elf64_Sym *entry)
{
    char magic[sizeof FL_PLUGIN_MAGIC];
    if (entry != NULL && entry->st_size < sizeof magic + 2 * sizeof(uint32_t)) {
        return false;
    }
    memcpy(magic, symbol, sizeof magic);
    return memcmp(magic, FL_PLUGIN_MAGIC, sizeof magic) == 0;
}

static fl_status check_sizes(const fl_plugin *plugin)
{
    static const uint32_t sizes[FL_PLUGIN_SIZES] = FL_PLUGIN_SIZE_LIST;
    if (plugin->size_bytes != sizeof *plugin || memcmp(plugin->sizes, sizes, sizeof sizes) != 0) {
        return fl_fail(
            FL_ENOTSUP,
            "built with other headers of version %d of Frostline's C API: compile it with "
            "those of this program",
            FL_API_VERSION);
    }
    return plugin->create != NULL ? FL_OK : fl_fail(FL_EFORMAT, "its plugin has no function");
}

fl_status fl_plugin_check_symbol(const void *symbol, const fl_plugin **plugin)
{
    Dl_info info;
    const Elf64_Sym *entry = NULL;
    const fl_plugin *found = symbol;
    bool known = dladdr1(symbol, &info, (void **)&entry, RTLD_DL_SYMENT) != 0 && entry != NULL;
    int type = known ? ELF64_ST_TYPE(entry->st_info) : STT_NOTYPE;
    if (type == STT_FUNC || type == STT_GNU_IFUNC) {
        return other_version(VERSION_OF_FUNCTIONS);
    }
    if (!has_magic(symbol, entry)) {
        return fl_fail(FL_EFORMAT, FL_PLUGIN_SYMBOL " is no plugin: define it with FL_PLUGIN");
    }
    if (found->version != FL_API_VERSION) {
        return other_version(found->version);
    }
    FL_TRY(check_sizes(found));
    *plugin = found;
    return FL_OK;
}
