/* The memory of a cache, one anonymous mapping:
 *
 *     header | unit [n_units] | when, at, heap [n_units] | index [n_keys] | memory [n_memory] units
 *
 * Its pages are taken as they are first written. A tier has its units elsewhere (cache/tier.h). */
#include "cache/cache.h"

#include "cache/file.h"
#include "cache/pool.h"
#include "device/errors/failure.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"

#include <errno.h>
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { LINE = 64 };
static const double MIB = 1048576.0;
static const size_t PER_UNIT = sizeof(fl_cell) + sizeof(int64_t) + 2 * sizeof(uint32_t);

static size_t lines(size_t size_bytes)
{
    return (size_bytes + LINE - 1) / LINE * LINE;
}

/* The part that does not depend on the number of units; each array ends on a cache line. */
static size_t fixed_bytes(const fl_cache *c)
{
    size_t ends = 4 * (size_t)LINE;
    return lines(sizeof(fl_pool_header)) + lines((size_t)c->o.n_keys * sizeof(uint32_t)) + ends;
}

static size_t mapping_bytes(const fl_cache *c)
{
    size_t units = c->tables_only ? 0 : c->n_memory * c->unit_bytes;
    return fixed_bytes(c) + c->n_units * PER_UNIT + units;
}

static void set_sizes(fl_cache *c, const fl_cache_options *options)
{
    c->o = *options;
    c->o.path = NULL;
    c->fd = -1;
    c->element_bytes = fl_dtype_size(options->dtype);
    c->value_bytes = fl_dtype_size(options->values);
    c->unit_bytes = lines((size_t)options->unit_elements * c->element_bytes);
}

int64_t fl_cache_least_bytes(const fl_cache_options *options)
{
    fl_cache c;
    memset(&c, 0, sizeof c);
    set_sizes(&c, options);
    size_t n = fl_pool_units_of(&c, options->value_elements);
    return (int64_t)(fixed_bytes(&c) + n * (PER_UNIT + c.unit_bytes));
}

static uint32_t at_most(uint64_t n, uint64_t most)
{
    return (uint32_t)(n < most ? n : most);
}

/* Memory manages the disk as well: a small cache.memory limits what a large cache.disk can hold. */
static void warn_of_disk(const fl_cache *c, uint64_t disk, uint64_t wanted, uint64_t fixed)
{
    if (disk < wanted) {
        fl_log(
            FL_LOG_WARN,
            "cache.disk: %.1f of %.1f MiB can be used: cache.memory, %.1f MiB, has room to manage "
            "only so much; %.1f MiB would manage all of it",
            (double)(disk * c->unit_bytes) / MIB, (double)(wanted * c->unit_bytes) / MIB,
            (double)c->o.memory_bytes / MIB,
            ceil((double)(fixed + wanted * PER_UNIT) / MIB * 10.0) / 10.0);
    }
}

/* At most one value for each key, in memory first. The tables of the disk tier lie in memory, too.
 */
static fl_status count_units(fl_cache *c)
{
    uint64_t budget = (uint64_t)c->o.memory_bytes, fixed = fixed_bytes(c);
    uint64_t each = fl_pool_units_of(c, c->o.value_elements);
    uint64_t wanted = at_most((uint64_t)c->o.n_keys * each, FL_POOL_NONE - 1);
    uint64_t disk = at_most((uint64_t)c->o.disk_bytes / c->unit_bytes, wanted);
    uint64_t left = budget > fixed ? budget - fixed : 0, disk_wanted = disk;
    disk = at_most(disk, left / PER_UNIT);
    if (left / (PER_UNIT + c->unit_bytes) >= wanted) {
        disk = 0;
    }
    uint64_t memory = at_most((left - disk * PER_UNIT) / (PER_UNIT + c->unit_bytes), wanted);
    disk = at_most(disk, wanted - memory);
    c->n_memory = (uint32_t)memory;
    c->n_units = (uint32_t)(memory + disk);
    if (memory < each && disk < each) {
        return fl_fail_field(FL_EBUDGET, FL_FIELDS("cache.memory"),
                             "%lld bytes; a cache of %lld samples, each up to %lld bytes, "
                             "needs at least %lld",
                             (long long)c->o.memory_bytes, (long long)c->o.n_keys,
                             (long long)((size_t)c->o.value_elements * c->element_bytes),
                             (long long)fl_cache_least_bytes(&c->o));
    }
    warn_of_disk(c, disk, at_most(disk_wanted, wanted - memory), fixed);
    return FL_OK;
}

/* At most one value for each key in memory_bytes of units alone. */
static fl_status count_tier_units(fl_cache *c)
{
    uint64_t each = fl_pool_units_of(c, c->o.value_elements);
    uint64_t wanted = at_most((uint64_t)c->o.n_keys * each, FL_POOL_NONE - 1);
    c->n_units = c->n_memory = at_most((uint64_t)c->o.memory_bytes / c->unit_bytes, wanted);
    if (c->n_units < each) {
        return fl_fail(FL_EBUDGET, "%lld bytes found, at least %llu are needed for one sample",
                       (long long)c->o.memory_bytes, (unsigned long long)(each * c->unit_bytes));
    }
    return FL_OK;
}

static void *carve(unsigned char **at, size_t size_bytes)
{
    void *piece = *at;
    *at += lines(size_bytes);
    return piece;
}

static fl_status map(fl_cache *c)
{
    c->mapping_bytes = mapping_bytes(c);
    void *mapping = mmap(NULL, c->mapping_bytes, PROT_READ | PROT_WRITE,
                         MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) {
        return fl_fail_field(FL_ENOMEM, FL_FIELDS("cache.memory"), "%zu bytes of shared memory: %s",
                             c->mapping_bytes, strerror(errno));
    }
    c->mapping = mapping;
    madvise(mapping, c->mapping_bytes, MADV_DONTDUMP);
    unsigned char *at = mapping;
    size_t n = c->n_units;
    c->header = carve(&at, sizeof *c->header);
    c->unit = carve(&at, n * sizeof *c->unit);
    c->order.when = carve(&at, n * sizeof *c->order.when);
    c->order.at = carve(&at, n * sizeof *c->order.at);
    c->order.heap = carve(&at, n * sizeof *c->order.heap);
    c->order.count = &c->header->n_ordered;
    c->index = carve(&at, (size_t)c->o.n_keys * sizeof *c->index);
    c->memory = at;
    return FL_OK;
}

static fl_status make_lock(fl_cache *c)
{
    pthread_mutexattr_t shared;
    pthread_mutexattr_init(&shared);
    pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&shared, PTHREAD_MUTEX_ROBUST);
    int error = pthread_mutex_init(&c->header->lock, &shared);
    pthread_mutexattr_destroy(&shared);
    return error == 0 ? FL_OK : fl_fail(FL_ENOTSUP, "no lock for the cache: %s", strerror(error));
}

static fl_status fill_cache(fl_cache *c, const char *path)
{
    FL_TRY(c->tables_only ? count_tier_units(c) : count_units(c));
    int64_t disk_bytes = (int64_t)(c->n_units - c->n_memory) * (int64_t)c->unit_bytes;
    if (disk_bytes > 0) {
        FL_TRY(fl_cache_file_open(path, disk_bytes, &c->fd));
        FL_TRY(fl_alloc(c->unit_bytes, (void **)&c->staging));
    }
    FL_TRY(map(c));
    FL_TRY(make_lock(c));
    fl_pool_init(c);
    return FL_OK;
}

static fl_status check_options(const fl_cache_options *o)
{
    bool sound = o->n_keys > 0 && o->unit_elements > 0 && o->value_elements > 0 &&
                 o->value_elements <= UINT32_MAX && o->memory_bytes >= 0 && o->disk_bytes >= 0 &&
                 (o->dtype == FL_F32 || o->dtype == FL_BF16) &&
                 (o->values == FL_F32 || o->values == o->dtype);
    return sound ? FL_OK
                 : fl_fail(FL_EINVAL, "a cache of %lld samples in units of %lld elements",
                           (long long)o->n_keys, (long long)o->unit_elements);
}

static fl_status create(const fl_cache_options *options, bool tables_only, fl_cache **out)
{
    fl_cache *c = NULL;
    FL_TRY(check_options(options));
    FL_TRY(fl_alloc(sizeof *c, (void **)&c));
    set_sizes(c, options);
    c->tables_only = tables_only;
    fl_status status = fill_cache(c, options->path);
    if (status != FL_OK) {
        fl_cache_destroy(&c);
        return status;
    }
    *out = c;
    return FL_OK;
}

fl_status fl_cache_create(const fl_cache_options *options, fl_cache **out)
{
    return create(options, false, out);
}

fl_status fl_cache_create_tables(const fl_cache_options *options, fl_cache **out)
{
    return create(options, true, out);
}

void fl_cache_destroy(fl_cache **cache)
{
    fl_cache *c = *cache;
    if (c == NULL) {
        return;
    }
    if (c->mapping != NULL) {
        munmap(c->mapping, c->mapping_bytes);
    }
    if (c->fd >= 0) {
        close(c->fd);
    }
    fl_free(c->staging);
    fl_free(c);
    *cache = NULL;
}

void fl_cache_attach(fl_cache *c)
{
    int own = c->fd >= 0 && !c->own_fd ? fl_cache_file_reopen(c->fd) : -1;
    if (own >= 0) {
        close(c->fd);
        c->fd = own;
        c->own_fd = true;
    }
}
