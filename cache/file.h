/* The disk tier's file. It has no name, so two runs in one folder cannot collide, and its space is
 * freed when the last process that has it open ends. */
#ifndef FL_CACHE_FILE_H
#define FL_CACHE_FILE_H

#include <frostline/status.h>

#include <stddef.h>
#include <stdint.h>

/* A file of size_bytes in the folder, its space reserved at once. FL_EIO with folder and reason. */
fl_status fl_cache_file_open(const char *folder, int64_t size_bytes, int *fd) FL_MUST_CHECK;

/* Read everything, or return false; interrupted calls are continued. Positioned: processes share
 * the descriptor. */
bool fl_cache_file_read(int fd, void *to, size_t size_bytes, int64_t at);
/* Read only if everything is in the page cache; return false at once otherwise. */
bool fl_cache_file_read_cached(int fd, void *to, size_t size_bytes, int64_t at);

/* Announce a read, so that the disk begins. */
void fl_cache_file_ask(int fd, size_t size_bytes, int64_t at);

/* Another descriptor of the same file, with a position and read-ahead of its own, for reads at
 * random places. -1 where that is impossible (without /proc, for example). */
int fl_cache_file_reopen(int fd);

bool fl_cache_file_write(int fd, const void *from, size_t size_bytes, int64_t at);

#endif
