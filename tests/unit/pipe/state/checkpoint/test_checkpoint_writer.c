/* What workers write of a checkpoint and what is read back: to the last bit, from any plan into any
 * other; what is linked; and what happens when the disk refuses. */
#include "pipe/state/checkpoint/checkpoint_writer.h"

#include "device/async/async.h"
#include "device/system/alloc.h"
#include "device/system/clock.h"
#include "nn/model.h"
#include "pipe/cost/plan.h"
#include "pipe/state/checkpoint/checkpoint_file.h"
#include "support/data/saved_state.h"
#include "support/data/toy.h"
#include "support/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { BLOCKS = 4 };

static fl_model *model;
static fl_device *cpu;
static char folder[FOLDER_SIZE];
static int folder_fd = -1;
static fl_checkpoint_store store;
static saved_run run; /* large */
static saved_truth first_truth, second_truth;
static fl_state_source first, second;

static int set_up_all(void **state)
{
    (void)state;
    signal(SIGXFSZ, SIG_IGN);
    bool good = fl_toy_model(BLOCKS, 0.0f, &model) == FL_OK &&
                fl_device_cpu_create(1, NULL, (size_t)1 << 30, &cpu) == FL_OK;
    first_truth = (saved_truth){.model = model, .version = 1};
    second_truth = (saved_truth){.model = model, .version = 2};
    first = saved_truth_source(&first_truth);
    second = saved_truth_source(&second_truth);
    return good ? 0 : -1;
}

static int tear_down_all(void **state)
{
    (void)state;
    fl_device_destroy(&cpu);
    fl_model_destroy(&model);
    return 0;
}

static int set_up(void **state)
{
    (void)state;
    make_folder(folder);
    folder_fd = open(folder, O_RDONLY | O_DIRECTORY);
    return fl_checkpoint_store_open(folder_fd, "checkpoints", &store) == FL_OK ? 0 : -1;
}

static int tear_down(void **state)
{
    (void)state;
    fl_checkpoint_store_close(&store);
    close(folder_fd);
    return remove_folder(folder);
}

static void open_run(int F, int K, int R, int n_workers, int64_t step, const fl_state_source *from)
{
    fl_plan plan = saved_plan(model, F, K, R, n_workers);
    saved_run_open(&run, model, cpu, &store, &plan, 0, step, from);
}

/* The file that a checkpoint has of a layer. */
static ino_t inode_of(int64_t step, fl_checkpoint_part part, int layer)
{
    char name[FL_CHECKPOINT_NAME_MAX], file[FL_CHECKPOINT_NAME_MAX], path[200];
    struct stat st;
    snprintf(path, sizeof path, "%s/checkpoints/%s/%s", folder,
             fl_checkpoint_folder_name(step, name), fl_checkpoint_file_name(part, layer, file));
    assert_int_equal(stat(path, &st), 0);
    return st.st_ino;
}

static int n_open_files(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (readdir(dir) != NULL) {
        n++;
    }
    closedir(dir);
    return n;
}

/* ---- what is written ---- */

/* Would catch: padding or another tensor in a file, and memory that each checkpoint takes anew. */
static void test_writer__saves_every_tensor(void **state)
{
    (void)state;
    int before = n_open_files();
    open_run(0, 2, 2, 5, 0, &first); /* worker 0 is a standby worker without a file */
    saved_run_save(&run, 10);
    saved_check(&run, 10, &first);
    uint64_t allocations = fl_alloc_count();
    saved_run_save(&run, 20);
    assert_int_equal(fl_alloc_count(), allocations);
    saved_check(&run, 20, &first);
    int64_t bytes = 0, held = 0, n_params = 0;
    for (int i = 0; i < 5; i++) {
        bytes += run.part[i].bytes;
        held += fl_checkpoint_writer_bytes(run.worker[i].writer);
    }
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        n_params += fl_model_layer_n_params(model, layer);
    }
    assert_in_range(bytes, 12 * n_params, 12 * n_params + run.n_files * 4096);
    assert_in_range(held, bytes, bytes + (run.n_files + 4) * 4096); /* each on a page */
    saved_run_close(&run);
    assert_int_equal(n_open_files(), before);
}

/* Would catch: a copy that is not waited for, and moments that lie apart from the device. */
static void test_writer__copies_from_an_asynchronous_device(void **state)
{
    (void)state;
    const fl_async_options options = {
        .n_threads = 1, .budget_bytes = (size_t)1 << 30, .seed = 5, .max_delay_us = 50};
    fl_device *device = NULL;
    fl_plan plan = saved_plan(model, 2, 2, 1, 3);
    assert_int_equal(fl_device_async_create(&options, &device), FL_OK);
    saved_run_open(&run, model, device, &store, &plan, 0, 0, &first);
    saved_run_save(&run, 10);
    saved_check(&run, 10, &first);
    saved_run_close(&run);
    fl_device_destroy(&device);
}

/* Saved under one plan, loaded under the next, saved again: nothing changes, whoever owns what. */
static void test_writer__reshards(void **state)
{
    (void)state;
    static const struct {
        int F, K, R, n_workers;
    } plans[] = {{0, 4, 1, 4}, {0, 1, 3, 3}, {0, 4, 1, 4}, {3, 2, 2, 5},
                 {3, 4, 1, 4}, {3, 1, 3, 4}, {3, 2, 2, 6}};
    fl_state_source source = first;
    fl_checkpoint_source saved = {0};
    int fd = -1;
    for (size_t i = 0; i < sizeof plans / sizeof *plans; i++) {
        char name[FL_CHECKPOINT_NAME_MAX];
        int64_t step = (int64_t)i;
        open_run(plans[i].F, plans[i].K, plans[i].R, plans[i].n_workers, step, &source);
        saved_run_save(&run, step);
        saved_check(&run, step, &first);
        saved_run_close(&run);
        fl_checkpoint_source_close(&saved);
        close(fd);
        fd = openat(store.dir_fd, fl_checkpoint_folder_name(step, name), O_RDONLY);
        source = fl_checkpoint_source_open(model, fd, SAVED_MOMENTS, &saved);
    }
    fl_checkpoint_source_close(&saved);
    close(fd);
}

/* ---- what is linked ---- */

static void follow(int F, int64_t step)
{
    run.plan.F = F;
    for (int rank = 0; rank < run.plan.n_workers; rank++) {
        fl_checkpoint_writer_follow(run.worker[rank].writer, &run.plan, step);
    }
}

/* Would catch: a frozen layer that is written again, and one that is linked although it trained
 * since. */
static void test_writer__links_what_was_frozen_before(void **state)
{
    (void)state;
    open_run(2, 1, 1, 1, 0, &first);
    int n_frozen = fl_frozen_layers(model, 2);
    saved_run_save(&run, 10);
    saved_run_keep(&run, 10);
    saved_run_save(&run, 20);
    saved_check(&run, 20, &first);
    for (int layer = 0; layer < fl_model_n_layers(model); layer++) {
        for (int part = 0; part < FL_CHECKPOINT_PARTS; part++) {
            const fl_checkpoint_file_report *file =
                saved_run_file(&run, (fl_checkpoint_part)part, layer);
            assert_int_equal(file->linked, layer < n_frozen);
            assert_int_equal(inode_of(10, file->part, layer) == inode_of(20, file->part, layer),
                             layer < n_frozen);
        }
    }
    assert_int_equal(run.part[0].n_files, run.n_files);
    saved_run_close(&run);
}

/* A layer that froze after the newest checkpoint, or thawed for a while, has other weights there.
 */
static void test_writer__writes_what_froze_or_thawed_since(void **state)
{
    (void)state;
    int n_frozen = fl_frozen_layers(model, 2);
    open_run(2, 1, 1, 1, 0, &first);
    follow(0, 0);  /* all of them train: only the weights matter here */
    follow(2, 11); /* frozen after the checkpoint */
    saved_run_save(&run, 10);
    saved_run_keep(&run, 10);
    saved_run_save(&run, 20);
    for (int layer = 0; layer < n_frozen; layer++) {
        assert_false(saved_run_file(&run, FL_CHECKPOINT_WEIGHTS, layer)->linked);
    }
    saved_run_keep(&run, 20);
    saved_run_save(&run, 30);
    assert_true(saved_run_file(&run, FL_CHECKPOINT_WEIGHTS, 0)->linked);
    follow(1, 30);
    follow(2, 31);
    saved_run_keep(&run, 30);
    saved_run_save(&run, 40);
    for (int layer = 0; layer < n_frozen; layer++) {
        assert_int_equal(saved_run_file(&run, FL_CHECKPOINT_WEIGHTS, layer)->linked,
                         layer < fl_frozen_layers(model, 1));
    }
    saved_check(&run, 40, &first);
    saved_run_close(&run);
}

/* Another file system is where no link can lead: the newest checkpoint is moved to one. */
static void test_writer__copies_files_that_cannot_be_linked(void **state)
{
    (void)state;
    char command[512], shm[] = "/dev/shm/fl-test-XXXXXX";
    struct stat here, there;
    if (mkdtemp(shm) == NULL || stat(shm, &there) != 0 || stat(folder, &here) != 0 ||
        here.st_dev == there.st_dev) {
        rmdir(shm);
        skip();
    }
    open_run(2, 1, 1, 1, 0, &first);
    saved_run_save(&run, 10);
    snprintf(command, sizeof command,
             "cd %s/checkpoints && mv step-000000010 %s/ && ln -s %s/step-000000010 .", folder, shm,
             shm);
    assert_int_equal(system(command), 0);
    saved_run_keep(&run, 10);
    saved_run_save(&run, 20);
    saved_check(&run, 20, &first);
    for (int i = 0; i < run.n_files; i++) {
        assert_false(run.file[i].linked);
    }
    saved_run_close(&run);
    assert_int_equal(remove_folder(shm), 0);
}

/* Would catch: a run that writes no checkpoint any more after the newest was deleted by hand. */
static void test_writer__writes_what_was_deleted(void **state)
{
    (void)state;
    char command[256];
    open_run(2, 1, 1, 1, 0, &first);
    saved_run_save(&run, 10);
    saved_run_keep(&run, 10);
    assert_int_equal(unlinkat(store.dir_fd, "step-000000010/moments-001.safetensors", 0), 0);
    saved_run_save(&run, 20);
    saved_check(&run, 20, &first);
    assert_false(saved_run_file(&run, FL_CHECKPOINT_MOMENTS, 1)->linked);
    assert_true(saved_run_file(&run, FL_CHECKPOINT_WEIGHTS, 1)->linked);
    snprintf(command, sizeof command, "rm -r %s/checkpoints/step-000000010", folder);
    assert_int_equal(system(command), 0);
    saved_run_save(&run, 30);
    saved_check(&run, 30, &first);
    assert_false(saved_run_file(&run, FL_CHECKPOINT_WEIGHTS, 1)->linked);
    saved_run_close(&run);
}

/* Would catch: a checkpoint that fails because an older one was deleted after its file was checked,
 * before it was linked. */
static void test_writer__copies_what_was_deleted_after_its_check(void **state)
{
    (void)state;
    static const char name[] = "weights-001.safetensors";
    fl_checkpoint_file copy;
    bool refused = false;
    int file_fd = -1;
    open_run(2, 1, 1, 1, 0, &first);
    saved_run_save(&run, 10);
    const fl_checkpoint_file_report *file = saved_run_file(&run, FL_CHECKPOINT_WEIGHTS, 1);
    int old_fd = openat(store.dir_fd, "step-000000010", O_RDONLY | O_DIRECTORY);
    assert_int_equal(
        fl_checkpoint_file_check(old_fd, name, file->bytes, file->xxh64, NULL, &file_fd), FL_OK);
    assert_int_equal(unlinkat(old_fd, name, 0), 0);
    assert_int_equal(fl_checkpoint_file_link(old_fd, store.dir_fd, name, &refused), FL_OK);
    assert_true(refused);
    assert_int_equal(fl_checkpoint_file_copy(file_fd, file->bytes, store.dir_fd, name, NULL, &copy),
                     FL_OK);
    assert_int_equal(copy.bytes, file->bytes);
    assert_true(copy.xxh64 == file->xxh64);
    assert_int_equal(fl_checkpoint_file_finish(&copy, name), FL_OK);
    assert_int_equal(unlinkat(store.dir_fd, name, 0), 0);
    close(file_fd);
    close(old_fd);
    saved_run_close(&run);
}

static void damage(const char *path)
{
    int fd = openat(store.dir_fd, path, O_RDWR);
    char byte;
    assert_int_equal(pread(fd, &byte, 1, 300), 1);
    byte ^= 1;
    assert_int_equal(pwrite(fd, &byte, 1, 300), 1);
    close(fd);
}

/* Would catch: one damaged byte of a frozen layer that every later checkpoint inherits. */
static void test_writer__links_no_damaged_file(void **state)
{
    (void)state;
    open_run(2, 1, 1, 1, 0, &first);
    saved_run_save(&run, 10);
    saved_run_keep(&run, 10);
    damage("step-000000010/weights-001.safetensors");
    saved_run_save(&run, 20);
    assert_int_equal(run.part[0].status, FL_EFORMAT);
    if (strstr(run.part[0].text, "weights-001.safetensors of the newest checkpoint is damaged: its "
                                 "hash is ") == NULL) {
        fail_msg("%s", run.part[0].text);
    }
    saved_run_save(&run, 30);
    saved_check(&run, 30, &first);
    assert_false(saved_run_file(&run, FL_CHECKPOINT_WEIGHTS, 1)->linked);
    assert_true(saved_run_file(&run, FL_CHECKPOINT_WEIGHTS, 0)->linked);
    saved_run_keep(&run, 30);
    saved_run_save(&run, 40);
    assert_true(saved_run_file(&run, FL_CHECKPOINT_WEIGHTS, 1)->linked);
    saved_run_close(&run);
}

/* The last checkpoint of a run has no next one. */
static void test_writer__checks_links_before_a_last_checkpoint(void **state)
{
    (void)state;
    open_run(2, 1, 1, 1, 0, &first);
    saved_run_save(&run, 10);
    saved_run_keep(&run, 10);
    damage("step-000000010/moments-000.safetensors");
    saved_worker *w = &run.worker[0];
    const fl_checkpoint_state now = {.plan = &run.plan, .params = &w->params, .parked = &w->parked};
    fl_checkpoint_writer_check_links(w->writer, &now);
    saved_run_save(&run, 20);
    saved_check(&run, 20, &first);
    assert_false(saved_run_file(&run, FL_CHECKPOINT_MOMENTS, 0)->linked);
    saved_run_close(&run);
}

/* ---- what goes wrong ---- */

static void expect_failure(const char *says)
{
    if (run.part[0].status == FL_OK || strstr(run.part[0].text, says) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", run.part[0].text, says);
    }
}

/* Would catch: a failure without the file and the reason, a file left open, and a later checkpoint
 * that fails, too. */
static void test_writer__names_the_file_that_finds_no_room(void **state)
{
    (void)state;
    struct rlimit limit;
    open_run(0, 1, 1, 1, 0, &first);
    saved_run_save(&run, 10);
    int before = n_open_files();
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const struct rlimit small = {4096, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    saved_run_save(&run, 20);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    expect_failure("worker 0, step-000000020: ");
    expect_failure(".safetensors: no room for ");
    expect_failure(": File too large");
    assert_int_equal(n_open_files(), before);
    saved_run_save(&run, 30);
    saved_check(&run, 30, &first);
    saved_run_close(&run);
}

/* Would catch: a durable checkpoint that is written over. */
static void test_writer__overwrites_nothing(void **state)
{
    (void)state;
    open_run(0, 1, 1, 1, 0, &first);
    saved_run_save(&run, 10);
    saved_run_close(&run);
    open_run(0, 1, 1, 1, 0, &second);
    saved_run_save(&run, 10);
    expect_failure("step-000000010: cannot make weights-000.safetensors: File exists");
    assert_int_equal(run.part[0].status, FL_EBUSY); /* the controller asks for a later step */
    saved_run_close(&run);
    open_run(0, 1, 1, 1, 0, &first);
    saved_run_save(&run, 20);
    saved_check(&run, 20, &first);
    run.n_files = 0;
    for (int i = 0; i < fl_model_n_layers(model) * FL_CHECKPOINT_PARTS; i++) {
        run.file[run.n_files++] =
            (fl_checkpoint_file_report){.layer = i / FL_CHECKPOINT_PARTS,
                                        .part = (fl_checkpoint_part)(i % FL_CHECKPOINT_PARTS),
                                        .linked = true};
    }
    run.part[0].step = 10;
    saved_check(&run, 10, &first);
    saved_run_close(&run);
}

static void test_writer__reports_a_folder_that_is_gone(void **state)
{
    (void)state;
    open_run(0, 1, 1, 1, 0, &first);
    assert_int_equal(unlinkat(folder_fd, "checkpoints", AT_REMOVEDIR), 0);
    saved_run_save(&run, 10);
    expect_failure("cannot make the folder step-000000010: No such file or directory");
    assert_int_equal(mkdirat(folder_fd, "checkpoints", 0700), 0); /* another one of the name */
    saved_run_save(&run, 20);
    expect_failure("cannot make the folder step-000000020: No such file or directory");
    saved_run_close(&run);
}

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    close(fd);
    return good;
}

/* Mounts of this process alone: as root at once, else as the root of a namespace of its own. */
static bool may_mount(void)
{
    char uid[64], gid[64];
    snprintf(uid, sizeof uid, "0 %d 1", (int)geteuid());
    snprintf(gid, sizeof gid, "0 %d 1", (int)getegid());
    bool alone =
        unshare(CLONE_NEWNS) == 0 ||
        (unshare(CLONE_NEWUSER | CLONE_NEWNS) == 0 && write_text("/proc/self/setgroups", "deny") &&
         write_text("/proc/self/uid_map", uid) && write_text("/proc/self/gid_map", gid));
    return alone && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0;
}

/* On a disk of 256 KiB, in a process of its own. Returns its exit code: 77, no such disk. */
static int fill_a_disk(void)
{
    char path[128];
    snprintf(path, sizeof path, "%s/disk", folder);
    if (mkdir(path, 0700) != 0 || !may_mount() ||
        mount("tmpfs", path, "tmpfs", 0, "size=256k") != 0) {
        return 77;
    }
    fl_checkpoint_store_close(&store);
    if (fl_checkpoint_store_open(AT_FDCWD, path, &store) != FL_OK) {
        return 1;
    }
    open_run(0, 1, 1, 1, 0, &first);
    saved_run_save(&run, 10);
    bool said = run.part[0].status == FL_EIO &&
                strstr(run.part[0].text, "No space left on device") != NULL &&
                strstr(run.part[0].text, ".safetensors: ") != NULL;
    saved_run_close(&run);
    umount(path);
    return said ? 0 : 1;
}

static void test_writer__says_that_the_disk_is_full(void **state)
{
    (void)state;
    int status = 0;
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        _exit(fill_a_disk());
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77) {
        skip(); /* this system lets no test mount a disk */
    }
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* ---- the thread ---- */

static sem_t reached, go_on;

static void hold_file(void *context, const fl_checkpoint_file_report *report)
{
    (void)context;
    (void)report;
    sem_post(&reached);
    sem_wait(&go_on);
}

static fl_checkpoint_part_report parts[4];
static atomic_int n_parts;

static void keep_part(void *context, const fl_checkpoint_part_report *report)
{
    (void)context;
    parts[atomic_fetch_add(&n_parts, 1)] = *report;
}

/* Would catch: a checkpoint whose buffer is filled again before it is on the disk, and one that is
 * lost without a report. */
static void test_writer__takes_one_checkpoint_at_a_time(void **state)
{
    (void)state;
    fl_checkpoint_writer *writer = NULL;
    open_run(0, 1, 1, 1, 0, &first);
    const fl_checkpoint_writer_options options = {.model = model,
                                                  .device = cpu,
                                                  .store = &store,
                                                  .n_moments = SAVED_MOMENTS,
                                                  .on_file = hold_file,
                                                  .on_part = keep_part};
    const fl_checkpoint_state now = {
        .plan = &run.plan, .params = &run.worker[0].params, .parked = &run.worker[0].parked};
    sem_init(&reached, 0, 0);
    sem_init(&go_on, 0, 0);
    assert_int_equal(fl_checkpoint_writer_create(&options, &writer), FL_OK);
    fl_checkpoint_writer_prepare(writer, &now);
    assert_int_equal(fl_checkpoint_writer_begin(writer, &now, 10), FL_OK);
    sem_wait(&reached);
    assert_int_equal(fl_checkpoint_writer_wait(writer, fl_deadline_us(1)), FL_EDEADLINE);
    fl_checkpoint_writer_prepare(writer, &now); /* nothing, while a checkpoint is written */
    assert_int_equal(fl_checkpoint_writer_begin(writer, &now, 20), FL_OK);
    assert_int_equal(parts[0].step, 20);
    assert_int_equal(parts[0].status, FL_EBUSY);
    for (int i = 0; i < 1000; i++) {
        sem_post(&go_on);
    }
    assert_int_equal(fl_checkpoint_writer_wait(writer, fl_deadline_us(60000)), FL_OK);
    assert_int_equal(atomic_load(&n_parts), 2);
    assert_int_equal(parts[1].step, 10);
    assert_int_equal(parts[1].status, FL_OK);
    assert_true(parts[1].copy_us >= 0 && parts[1].write_us > 0);
    assert_true(parts[1].buffer_bytes >= parts[1].bytes);
    fl_checkpoint_writer_destroy(&writer);
    saved_run_close(&run);
}

static _Atomic fl_status last_status;

static void ignore_file(void *context, const fl_checkpoint_file_report *report)
{
    (void)context;
    (void)report;
}

static void announce_part(void *context, const fl_checkpoint_part_report *report)
{
    (void)context;
    atomic_store(&last_status, report->status);
    sem_post(&reached);
}

/* The controller asks for the next one while the thread is still in its report of the last one.
 * Would catch: a best checkpoint that is refused for it, and comes after another step. */
static void test_writer__takes_the_next_once_the_last_is_reported(void **state)
{
    (void)state;
    fl_checkpoint_writer *writer = NULL;
    open_run(0, 1, 1, 1, 0, &first);
    const fl_checkpoint_writer_options options = {.model = model,
                                                  .device = cpu,
                                                  .store = &store,
                                                  .n_moments = SAVED_MOMENTS,
                                                  .on_file = ignore_file,
                                                  .on_part = announce_part};
    const fl_checkpoint_state now = {
        .plan = &run.plan, .params = &run.worker[0].params, .parked = &run.worker[0].parked};
    sem_init(&reached, 0, 0);
    assert_int_equal(fl_checkpoint_writer_create(&options, &writer), FL_OK);
    for (int step = 1; step <= 50; step++) {
        assert_int_equal(fl_checkpoint_writer_begin(writer, &now, step), FL_OK);
        sem_wait(&reached);
        assert_int_equal(atomic_load(&last_status), FL_OK);
    }
    assert_int_equal(fl_checkpoint_writer_wait(writer, fl_deadline_us(60000)), FL_OK);
    fl_checkpoint_writer_destroy(&writer);
    sem_destroy(&reached);
    saved_run_close(&run);
}

/* Would catch: a failure of the device that is taken for one of the disk. */
static void test_writer__returns_a_failure_of_the_device(void **state)
{
    (void)state;
    const fl_async_options options = {.n_threads = 1, .budget_bytes = (size_t)1 << 30, .seed = 5};
    fl_device *device = NULL;
    fl_plan plan = saved_plan(model, 0, 1, 1, 1);
    assert_int_equal(fl_device_async_create(&options, &device), FL_OK);
    saved_run_open(&run, model, device, &store, &plan, 0, 0, &first);
    const fl_checkpoint_state now = {
        .plan = &run.plan, .params = &run.worker[0].params, .parked = &run.worker[0].parked};
    const fl_async_fault fault = {.entry = "copy_out", .n = 3};
    assert_int_equal(fl_device_async_fail(device, &fault), FL_OK);
    assert_int_not_equal(fl_checkpoint_writer_begin(run.worker[0].writer, &now, 10), FL_OK);
    assert_int_equal(run.n_parts, 0);
    saved_run_close(&run);
    fl_device_destroy(&device);
}

/* Without memory for the copy there is no checkpoint, and training goes on. */
static void test_writer__reports_missing_memory(void **state)
{
    (void)state;
    open_run(0, 1, 1, 1, 0, &first);
    for (uint64_t n = 1;; n++) {
        run.n_files = run.n_parts = 0;
        fl_alloc_fail_at(n);
        saved_run_save(&run, (int64_t)n);
        fl_alloc_fail_at(0);
        if (run.part[0].status == FL_OK) {
            assert_true(n > 10);
            saved_check(&run, (int64_t)n, &first);
            break;
        }
        assert_int_equal(run.part[0].status, FL_ENOMEM);
        assert_int_equal(run.n_files, 0);
    }
    saved_run_close(&run);
}

/* ---- loading ---- */

static fl_status load_weight(const char *step)
{
    fl_checkpoint_source saved;
    float value[4096];
    int fd = openat(store.dir_fd, step, O_RDONLY);
    fl_state_source source = fl_checkpoint_source_open(model, fd, SAVED_MOMENTS, &saved);
    fl_status status = source.read(source.self, 1, 0, FL_STATE_WEIGHT, value);
    fl_checkpoint_source_close(&saved);
    close(fd);
    return status;
}

static void expect_message(const char *says)
{
    if (strstr(fl_errmsg(), says) == NULL) {
        fail_msg("\"%s\" lacks \"%s\"", fl_errmsg(), says);
    }
}

/* Would catch: a file that is read although it is not the layer's. */
static void test_source__refuses_files_that_do_not_fit(void **state)
{
    (void)state;
    open_run(0, 1, 1, 1, 0, &first);
    saved_run_save(&run, 10);
    saved_run_close(&run);
    const char *file = "step-000000010/weights-001.safetensors";
    assert_int_equal(load_weight("step-000000010"), FL_OK);
    assert_int_equal(
        renameat(store.dir_fd, "step-000000010/weights-002.safetensors", store.dir_fd, file), 0);
    assert_int_equal(load_weight("step-000000010"), FL_EINVAL);
    expect_message("the checkpoint: weights-001.safetensors has no tensor \"");
    int fd = openat(store.dir_fd, file, O_WRONLY);
    assert_int_equal(ftruncate(fd, 100), 0);
    close(fd);
    assert_int_equal(load_weight("step-000000010"), FL_EFORMAT);
    expect_message("the checkpoint: weights-001.safetensors: ");
    assert_int_equal(unlinkat(store.dir_fd, file, 0), 0);
    assert_int_equal(load_weight("step-000000010"), FL_EIO);
    expect_message("cannot open weights-001.safetensors: No such file or directory");
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(test_writer__saves_every_tensor),
        TEST(test_writer__copies_from_an_asynchronous_device),
        TEST(test_writer__reshards),
        TEST(test_writer__links_what_was_frozen_before),
        TEST(test_writer__writes_what_froze_or_thawed_since),
        TEST(test_writer__copies_files_that_cannot_be_linked),
        TEST(test_writer__writes_what_was_deleted),
        TEST(test_writer__copies_what_was_deleted_after_its_check),
        TEST(test_writer__links_no_damaged_file),
        TEST(test_writer__checks_links_before_a_last_checkpoint),
        TEST(test_writer__names_the_file_that_finds_no_room),
        TEST(test_writer__overwrites_nothing),
        TEST(test_writer__reports_a_folder_that_is_gone),
        TEST(test_writer__says_that_the_disk_is_full),
        TEST(test_writer__takes_one_checkpoint_at_a_time),
        TEST(test_writer__takes_the_next_once_the_last_is_reported),
        TEST(test_writer__returns_a_failure_of_the_device),
        TEST(test_writer__reports_missing_memory),
        TEST(test_source__refuses_files_that_do_not_fit),
    };
#undef TEST
    return cmocka_run_group_tests(tests, set_up_all, tear_down_all);
}
