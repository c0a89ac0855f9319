#include "launcher/run/hosts/hosts.h"

#include "control/agent/join/wait_record.h"
#include "control/link/keys/zap_auth.h"
#include "device/errors/failure.h"
#include "device/errors/io_status.h"
#include "device/errors/log.h"
#include "device/system/alloc.h"
#include "device/text/plural.h"
#include "device/text/size_text.h"
#include "launcher/engine/meeting.h"
#include "launcher/job/job.h"
#include "launcher/job/text/address.h"
#include "launcher/run/hosts/host_address.h"
#include "launcher/run/hosts/host_names.h"
#include "launcher/run/hosts/key_read.h"
#include "launcher/run/hosts/own_address.h"

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zmq.h>

/* ---- the hosts ---- */

void fl_hosts_of_job(const fl_job *job, fl_cluster_file *out)
{
    fl_cluster_file_init(out);
    snprintf(out->written_in, sizeof out->written_in, "%s", job->origins.file);
    for (int64_t i = 0; i < job->n_hosts; i++) {
        fl_cluster_file_add(out, &job->hosts[i]);
        (void)fl_job_host_place(job, i, &out->line[i], &out->column[i]);
    }
}

static fl_status read_head_keys(const char *path, fl_hosts *out)
{
    fl_status status = fl_hosts_read_head_key(path, &out->keys, out->secret);
    fl_hosts_key_path(path, out->key_path);
    return status == FL_OK ? FL_OK : fl_within(status, "--key");
}

static fl_status make_keys(fl_hosts *out)
{
    return zmq_curve_keypair(out->keys.server, out->secret) == 0 &&
                   zmq_curve_keypair(out->keys.public_key, out->keys.secret) == 0
               ? FL_OK
               : fl_fail(FL_ENOTSUP, "a run on several hosts: this ZeroMQ has no CURVE");
}

/* Plans are made for the memory that a host states; a worker has devices.memory. */
static fl_status check_budget(const fl_cluster_file *file, const fl_job *job, int device)
{
    int64_t planned = file->cluster.memory_bytes[device], budget = job->devices.memory_bytes;
    char found[FL_SIZE_TEXT_MAX], allowed[FL_SIZE_TEXT_MAX];
    return planned <= budget || budget <= 0
               ? FL_OK
               : fl_cluster_file_refuse(file, file->cluster.host_of[device], "memory",
                                        "found %s, allowed: at most devices.memory, %s",
                                        fl_size_text((double)planned, found),
                                        fl_size_text((double)budget, allowed));
}

static bool is_job(const char *source)
{
    return strcmp(source, FL_HOSTS_OF_JOB) == 0;
}

/* Prefix the current failure with the source; a job's field has a place. */
static fl_status within_source(const char *source, fl_status status)
{
    return status == FL_OK  ? FL_OK
           : is_job(source) ? fl_fail_field(status, FL_FIELDS("hosts"), "%s", fl_errmsg())
                            : fl_within(status, "%s", source);
}

/* Prefix the current failure with the host: of a file or a job, with its entry. */
static fl_status refuse_address(const fl_cluster_file *file, const char *source, int i)
{
    bool is_written = file->path[0] != '\0' || is_job(source);
    return is_written ? fl_cluster_file_refuse(file, i, "address", "%s", fl_errmsg())
                      : fl_fail(FL_EINVAL, "%s: host %s: %s", source, file->name[i], fl_errmsg());
}

/* An address that leads other hosts to themselves. This host, the head, has others to offer. */
static fl_status refuse_own(const fl_cluster_file *file, const char *source, int i,
                            const char *address)
{
    const char *given = file->address[i];
    fl_status status = i == 0 ? fl_own_address_check(given, address, false)
                              : fl_address_refuse_near(given, address);
    return status == FL_OK ? FL_OK : refuse_address(file, source, i);
}

static fl_status take_address(const fl_cluster_file *file, const char *source, int i, fl_hosts *out)
{
    char address[FL_ADDRESS_TEXT];
    fl_host *host = &out->host[i];
    if (file->address[i][0] == '\0') {
        return fl_cluster_file_refuse(file, i, "address",
                                      "found nothing, allowed: an IPv4 address, as 10.0.0.1, "
                                      "which a run needs of each host");
    }
    if (fl_host_address(file->address[i], address) != FL_OK) {
        return refuse_address(file, source, i);
    }
    snprintf(host->address, sizeof host->address, "%s", address);
    snprintf(out->ssh[i], sizeof out->ssh[i], "%s", file->address[i]);
    return FL_OK;
}

/* What others are told, and a socket listens at: "tcp://NAME:PORT" becomes "tcp://10.0.0.1:PORT".
 */
static fl_status resolve_listen(const char *listen, bool near, char text[FL_HOSTS_ENDPOINT_MAX])
{
    char name[FL_HOSTS_ENDPOINT_MAX], address[FL_ADDRESS_TEXT];
    const char *colon = strrchr(listen, ':');
    snprintf(text, FL_HOSTS_ENDPOINT_MAX, "%s", listen);
    if (strncmp(listen, "tcp://", 6) != 0 || colon < listen + 7 ||
        colon - listen - 6 >= (ptrdiff_t)sizeof name) {
        return FL_OK; /* take_endpoints refuses it */
    }
    snprintf(name, sizeof name, "%.*s", (int)(colon - listen - 6), listen + 6);
    FL_TRY(fl_own_address_resolve(name, address));
    snprintf(text, FL_HOSTS_ENDPOINT_MAX, "tcp://%s%.16s", address, colon);
    bool is_own = fl_host_address_is_own(address); /* else take_listen says why */
    return is_own ? fl_own_address_check(name, address, near) : FL_OK;
}

static fl_status take_endpoints(const char *source, const char *listen, fl_hosts *out)
{
    return fl_zap_auth_endpoint(listen, 0, out->agents, sizeof out->agents) &&
                   fl_zap_auth_endpoint(listen, 1, out->links, sizeof out->links)
               ? FL_OK
               : fl_fail(FL_EINVAL,
                         "%s: found '%.80s', allowed: tcp://ADDRESS:PORT, PORT from 1 to 65534",
                         source, listen);
}

static fl_status take_listen(const char *listen, fl_hosts *out)
{
    char text[FL_HOSTS_ENDPOINT_MAX];
    bool near = fl_host_address_is_loopback(out->host[0].address);
    fl_status status = resolve_listen(listen, near, text);
    if (status != FL_OK) {
        return fl_within(status, "--listen");
    }
    FL_TRY(take_endpoints("--listen", text, out));
    status = fl_host_address_check_port(out->agents);
    if (status == FL_OK) {
        status = fl_host_address_check_port(out->links);
    }
    snprintf(out->listen, sizeof out->listen, "%s", listen);
    return status == FL_OK ? FL_OK : fl_within(status, "--listen");
}

/* The head is this host. A socket can be bound to a multicast address and to a broadcast one, too.
 */
static fl_status check_first(const fl_cluster_file *file, const char *source, const fl_hosts *hosts)
{
    const fl_host *head = &hosts->host[0];
    char own[FL_HOST_TEXT + 32] = "";
    if (fl_host_address_is_own(head->address)) {
        bool near = fl_host_address_is_loopback(head->address);
        fl_status status = fl_own_address_check(file->address[0], head->address, near);
        return status == FL_OK ? FL_OK : refuse_address(file, source, 0);
    }
    for (int i = 1; i < hosts->n; i++) {
        const fl_host *host = &hosts->host[i];
        if (own[0] == '\0' && fl_host_address_is_own(host->address)) {
            snprintf(own, sizeof own, "; this host is %s", host->name);
        }
    }
    fl_status status = fl_fail(FL_EINVAL,
                               "the first host, %s, has the address %s, which this host has not%s; "
                               "allowed: frostline run on the first host",
                               head->name, head->address, own);
    return status == FL_OK ? FL_OK : refuse_address(file, source, 0);
}

/* Hosts reach each other: none has a loopback address, or all have one, and are one machine. */
static fl_status check_reach(const fl_cluster_file *file, const char *source, const fl_hosts *hosts)
{
    int near = fl_address_find_near(hosts->host[0].address, sizeof hosts->host[0], hosts->n);
    return near < 0 ? FL_OK : refuse_own(file, source, near, hosts->host[near].address);
}

/* Names may have the same address. */
static fl_status check_differ(const fl_cluster_file *file, const char *source,
                              const fl_hosts *hosts)
{
    for (int i = 0; i < hosts->n; i++) {
        for (int j = 0; j < i; j++) {
            fl_status status =
                strcmp(hosts->host[i].address, hosts->host[j].address) != 0
                    ? FL_OK
                    : fl_fail(FL_EINVAL,
                              "found %s, which host %s has, too; allowed: addresses that differ",
                              hosts->host[i].address, hosts->host[j].name);
            if (status != FL_OK) {
                return refuse_address(file, source, i);
            }
        }
    }
    return FL_OK;
}

/* The head would wait for a host that it is itself. */
static fl_status check_others(const fl_cluster_file *file, const char *source,
                              const fl_hosts *hosts)
{
    for (int i = 1; i < hosts->n; i++) {
        if (fl_own_address_check_other(file->address[i], hosts->host[i].address) != FL_OK) {
            return refuse_address(file, source, i);
        }
    }
    return FL_OK;
}

static fl_status choose_endpoints(const char *source, fl_hosts *out)
{
    char listen[FL_HOST_TEXT + 32];
    int port = 0;
    fl_status status = fl_host_address_free_ports(out->host[0].address, &port);
    FL_TRY(within_source(source, status));
    snprintf(listen, sizeof listen, "tcp://%s:%d", out->host[0].address, port);
    return take_endpoints(source, listen, out);
}

static fl_status await_names(const fl_cluster_file *file, const fl_hosts_source *source)
{
    const char *names[FL_MAX_WORKERS];
    int n = 0;
    for (int i = 0; i < file->cluster.n_hosts && source->names_ms > 0; i++) {
        if (file->address[i][0] != '\0') {
            names[n++] = file->address[i];
        }
    }
    return fl_host_names_await(names, n, source->names_ms);
}

/* A worker listens at two ports, and at two more while the next plan opens; the agent at one. */
static fl_status check_ports(const fl_host *host, const uint16_t ports[2])
{
    char devices[FL_COUNT_BYTES];
    int needed = 4 * host->n + 1, n = ports[1] - ports[0] + 1;
    return ports[0] == 0 || n >= needed
               ? FL_OK
               : fl_fail_field(FL_EINVAL, FL_FIELDS("autodp.ports"),
                               "found %d ports, allowed: %d or more for host %s, which has %s", n,
                               needed, host->name, fl_count(host->n, "device", devices));
}

fl_status fl_hosts_place(const fl_cluster_file *file, const char *source, const fl_job *job,
                         fl_hosts *out)
{
    const fl_cluster *c = &file->cluster;
    memset(out, 0, sizeof *out);
    out->n = c->n_hosts;
    out->detect_ms = job->fault.detect_ms;
    out->apart = !job->run.shared;
    fl_job_ports(job, out->ports);
    if (c->n_hosts < 2) {
        return within_source(source, fl_fail(FL_EINVAL,
                                             "found one host, allowed: two or more; a run on one "
                                             "host needs no %s",
                                             source));
    }
    for (int i = 0; i < c->n_devices; i++) {
        out->host[c->host_of[i]].n++;
        FL_TRY(check_budget(file, job, i));
    }
    for (int i = 0; i < c->n_hosts; i++) {
        fl_host *host = &out->host[i];
        host->first = i == 0 ? 0 : out->host[i - 1].first + out->host[i - 1].n;
        snprintf(host->name, sizeof host->name, "%s", file->name[i]);
        FL_TRY(check_ports(host, out->ports));
    }
    return FL_OK;
}

fl_status fl_hosts_make(const fl_cluster_file *file, const fl_hosts_source *source,
                        const fl_job *job, fl_hosts *out)
{
    const fl_cluster *c = &file->cluster;
    FL_TRY(fl_hosts_place(file, source->name, job, out));
    FL_TRY(await_names(file, source));
    for (int i = 0; i < c->n_hosts; i++) {
        FL_TRY(take_address(file, source->name, i, out));
    }
    FL_TRY(source->key == NULL ? make_keys(out) : read_head_keys(source->key, out));
    FL_TRY(check_reach(file, source->name, out));
    FL_TRY(check_first(file, source->name, out));
    FL_TRY(check_differ(file, source->name, out));
    FL_TRY(check_others(file, source->name, out));
    return source->listen == NULL ? choose_endpoints(source->name, out)
                                  : take_listen(source->listen, out);
}

/* ---- the job ---- */

/* NCCL encrypts nothing, so with TLS no data may go over it between hosts. */
static fl_status check_transport(const fl_hosts *hosts, const fl_job *job)
{
    return job->autodp.transport != FL_TRANSPORT_NCCL || job->autodp.security == FL_SECURITY_NONE
               ? FL_OK
               : fl_fail_field(
                     FL_EINVAL, FL_FIELDS("autodp.transport", "autodp.security"),
                     "found nccl, but the run has %d hosts, and NCCL does not encrypt what "
                     "it sends between them; allowed: auto or host, or "
                     "autodp.security none in a network that you trust",
                     hosts->n);
}

static fl_status check_devices(const fl_job *job, int n)
{
    if (job->devices.count != FL_JOB_AUTO && job->devices.count != n) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("devices.count"),
                             "found %lld, but the hosts have %d devices; allowed: auto, "
                             "%d",
                             (long long)job->devices.count, n, n);
    }
    if (job->devices.max != FL_JOB_AUTO && job->devices.max < n) {
        return fl_fail_field(FL_EINVAL, FL_FIELDS("devices.max"),
                             "found %lld, but the hosts have %d devices; allowed: auto, or %d or "
                             "more",
                             (long long)job->devices.max, n, n);
    }
    return FL_OK;
}

/* Each host has that many stores, and each store has workers that read from it. */
static fl_status check_cache(const fl_hosts *hosts, const fl_job *job)
{
    const fl_host *least = &hosts->host[0];
    char devices[FL_COUNT_BYTES];
    for (int i = 1; i < hosts->n; i++) {
        least = hosts->host[i].n < least->n ? &hosts->host[i] : least;
    }
    return job->cache.policy == FL_CACHE_OFF || job->cache.stores <= least->n
               ? FL_OK
               : fl_fail_field(FL_EINVAL, FL_FIELDS("cache.stores"),
                               "found %lld, but host %s has %s; allowed: at most as many on each "
                               "host",
                               (long long)job->cache.stores, least->name,
                               fl_count(least->n, "device", devices));
}

fl_status fl_hosts_take_job(const fl_hosts *hosts, fl_job *job)
{
    const fl_host *last = &hosts->host[hosts->n - 1];
    FL_TRY(check_transport(hosts, job));
    FL_TRY(check_devices(job, last->first + last->n));
    FL_TRY(check_cache(hosts, job));
    if (job->devices.count == FL_JOB_AUTO) { /* which no line of the job states from here on */
        job->origins.of[fl_schema_find("devices.count")].line = FL_ORIGIN_DEFAULT;
    }
    job->devices.count = last->first + last->n;
    return FL_OK;
}

/* ---- keys ---- */

#define KEY_PART FL_HOSTS_KEY_FILE ".part"

#define AGENTS_KEYS                                                                                \
    "# With this file anybody can join the run. The head's public key:\n%s\n"                      \
    "# The secret key of agents and workers:\n%s\n"

fl_status fl_hosts_print_keys(char agents[FL_HOSTS_KEYS_TEXT], char head[FL_HOSTS_KEYS_TEXT])
{
    fl_hosts *hosts = NULL;
    FL_TRY(fl_alloc(sizeof *hosts, (void **)&hosts));
    fl_status status = make_keys(hosts);
    snprintf(agents, FL_HOSTS_KEYS_TEXT, AGENTS_KEYS, hosts->keys.server, hosts->keys.secret);
    snprintf(head, FL_HOSTS_KEYS_TEXT, "%s# The secret key of the head:\n%s\n", agents,
             hosts->secret);
    explicit_bzero(hosts, sizeof *hosts);
    fl_free(hosts);
    return status;
}

/* It gets its name when it is whole: agents wait for it. */
static fl_status write_key(const fl_hosts *hosts, int dir_fd, const char *name)
{
    int fd = openat(dir_fd, KEY_PART, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) {
        return fl_fail(fl_io_status(errno), KEY_PART ": %s", strerror(errno));
    }
    bool good = dprintf(fd, AGENTS_KEYS, hosts->keys.server, hosts->keys.secret) > 0;
    good = close(fd) == 0 && good && renameat(dir_fd, KEY_PART, dir_fd, name) == 0;
    if (!good) {
        int error = errno;
        (void)unlinkat(dir_fd, KEY_PART, 0);
        return fl_fail(fl_io_status(error), "%s: %s", name, strerror(error));
    }
    return FL_OK;
}

/* For tasks that an engine has started. */
static fl_status announce(const fl_hosts *hosts)
{
    int fd = open(hosts->meeting, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return fl_fail(FL_EIO, "%s: %s", hosts->meeting, strerror(errno));
    }
    fl_status status = write_key(hosts, fd, FL_MEETING_KEYS);
    close(fd);
    return status == FL_OK ? fl_meeting_announce(hosts->meeting, hosts->agents) : status;
}

fl_status fl_hosts_write_key(const fl_hosts *hosts, int dir_fd)
{
    FL_TRY(write_key(hosts, dir_fd, FL_HOSTS_KEY_FILE));
    return hosts->meeting[0] == '\0' ? FL_OK : announce(hosts);
}

void fl_hosts_remove_key(int dir_fd)
{
    (void)unlinkat(dir_fd, FL_HOSTS_KEY_FILE, 0); /* it may have been removed */
    (void)unlinkat(dir_fd, KEY_PART, 0);          /* of a head that was killed */
    fl_wait_record_clear(dir_fd);
}
