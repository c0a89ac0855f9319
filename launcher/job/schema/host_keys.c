#include "launcher/job/schema/host_keys.h"

#include "device/text/plural.h"
#include "launcher/job/text/address.h"

#include <frostline/plan.h>

#include <stddef.h>
#include <string.h>

#define MIB (INT64_C(1) << 20)
#define PIB (INT64_C(1) << 50)

#define AT(member) offsetof(fl_job_host, member)

#define NAME                                                                                       \
    {                                                                                              \
        .path = "name", .type = FL_FIELD_TEXT, .offset = AT(name), .most = FL_JOB_HOST_TEXT - 1,   \
        .doc = "The host's name in the run."                                                       \
    }
#define ADDRESS(kind, what)                                                                        \
    {                                                                                              \
        .path = "address", .type = FL_FIELD_TEXT, .address = (kind), .unit = (what),               \
        .offset = AT(address), .most = FL_JOB_HOST_TEXT - 1,                                       \
        .doc = "Its IPv4 address, or a name that resolves to it: for ssh, and for the other "      \
               "hosts."                                                                            \
    }
#define DEVICES                                                                                    \
    {                                                                                              \
        .path = "devices", .type = FL_FIELD_INTEGER, .offset = AT(devices), .is_int = true,        \
        .least = 1, .most = FL_MAX_WORKERS, .doc = "Its workers."                                  \
    }
#define OPTIONAL                                                                                   \
    {.path = "sockets",                                                                            \
     .type = FL_FIELD_INTEGER,                                                                     \
     .offset = AT(sockets),                                                                        \
     .is_int = true,                                                                               \
     .least = 1,                                                                                   \
     .most = FL_MAX_WORKERS,                                                                       \
     .doc = "Processor sockets that hold its devices; without it: 1, for the first host what its " \
            "system shows (docs/planner.md)."},                                                    \
        {.path = "memory",                                                                         \
         .type = FL_FIELD_SIZE,                                                                    \
         .offset = AT(memory_bytes),                                                               \
         .least = MIB,                                                                             \
         .most = PIB,                                                                              \
         .doc = "For which plans are made, of each of its devices, at most devices.memory; "       \
                "without it: devices.memory."},                                                    \
        {.path = "speed",                                                                          \
         .type = FL_FIELD_NUMBER,                                                                  \
         .offset = AT(speed),                                                                      \
         .low = 0.001,                                                                             \
         .high = 1000.0,                                                                           \
         .doc = "Of each of its devices, relative to its profile: 0.5 takes twice as long. With "  \
                "speed, nothing is measured on the host."},                                        \
    {                                                                                              \
        .path = "profile", .type = FL_FIELD_PATH, .offset = AT(profile),                           \
        .doc = "A profile that was measured on a host of this kind; without it and without "       \
               "speed, a run measures a host of another kind than the first one."                  \
    }

static const fl_field of_job[] = {
    NAME, ADDRESS(FL_ADDRESS_OR_NAME, "an IPv4 address or a name that has one (no IPv6)"), DEVICES,
    OPTIONAL};
static const fl_field of_file[] = {
    NAME, DEVICES, ADDRESS(FL_ADDRESS_ALONE, "an IPv4 address, as 10.0.0.1 (no IPv6)"), OPTIONAL};

static const fl_foreign_key foreign[] = {
    {"user", "ssh takes its user from its own configuration, as ~/.ssh/config (Host, User)"},
    {"port", "ssh takes its port from its own configuration, as ~/.ssh/config (Host, Port)"},
    {NULL, NULL}};

const fl_list fl__hosts_of_job = {.least = 2,
                                  .capacity = FL_JOB_HOSTS_MAX,
                                  .item_bytes = sizeof(fl_job_host),
                                  .n_keys = sizeof of_job / sizeof *of_job,
                                  .n_required = 3,
                                  .key = of_job,
                                  .foreign = foreign};
const fl_list fl__hosts_of_file = {.least = 1,
                                   .capacity = FL_MAX_WORKERS,
                                   .item_bytes = sizeof(fl_job_host),
                                   .n_keys = sizeof of_file / sizeof *of_file,
                                   .n_required = 2,
                                   .key = of_file,
                                   .foreign = foreign};

static bool is_there(const char *texts, size_t stride, int n, const char *text)
{
    bool is = false;
    for (int i = 0; i < n && text[0] != '\0'; i++) {
        is = is || strcmp(texts + (size_t)i * stride, text) == 0;
    }
    return is;
}

fl_status fl__host_check(const fl_job_host *host, const fl__hosts_before *before)
{
    char devices[FL_COUNT_BYTES];
    int entry = before->n + 1;
    if (is_there(before->name, before->name_stride, before->n, host->name)) {
        return fl_fail(FL_EINVAL, "entry %d, name: found %s twice, allowed: names that differ",
                       entry, host->name);
    }
    if (is_there(before->address, before->address_stride, before->n, host->address)) {
        return fl_fail(FL_EINVAL,
                       "entry %d, address: found %s twice, allowed: addresses that differ", entry,
                       host->address);
    }
    if (host->sockets > host->devices) {
        return fl_fail(FL_EINVAL, "entry %d, sockets: found %d, allowed: at most its %s", entry,
                       host->sockets, fl_count(host->devices, "device", devices));
    }
    return before->n_devices + host->devices <= FL_MAX_WORKERS
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "entry %d, devices: found %d devices up to here, allowed: at most %d",
                         entry, before->n_devices + host->devices, FL_MAX_WORKERS);
}

fl_status fl__hosts_check_near(const fl__hosts_before *all, int *entry)
{
    int near = fl_address_find_near(all->address, all->address_stride, all->n);
    if (near < 0) {
        return FL_OK;
    }
    const char *address = all->address + (size_t)near * all->address_stride;
    *entry = near;
    return fl_within(fl_address_refuse_near(address, address), "entry %d, address", near + 1);
}
