/* A folder with a folder for each class, and in them image files. */
#ifndef FL_DATA_IMAGES_FOLDER_H
#define FL_DATA_IMAGES_FOLDER_H

#include <frostline/status.h>

#include <stdbool.h>
#include <stdint.h>

/* The largest number of classes, that of a model's configuration. */
enum { FL_IMAGE_CLASSES_MAX = 10000 };

/* Texts and arrays are owned. A struct of zeros holds nothing. */
typedef struct fl_image_folder {
    int n_classes;
    char **name; /* [n_classes] of the classes' folders, in the order of their bytes */
    int64_t n;
    char **path;       /* [n] "FOLDER/CLASS/FILE", by class, then in the order of their bytes */
    int32_t *label;    /* [n] */
    int64_t n_skipped; /* files of other names */
} fl_image_folder;

/* List the folder. A class is a folder whose name does not begin with a dot; an image a regular
 * file, or a link to one, whose name ends in .jpg, .jpeg or .png, in small letters or capitals.
 * Other files are counted, and nothing below a class's folders is looked at.
 * Returns  FL_EIO; FL_EFORMAT for a folder without classes, a class without images, or too many of
 *          them; FL_ENOMEM. Nothing is held on failure. */
fl_status fl_image_folder_list(const char *path, fl_image_folder *out) FL_MUST_CHECK;

/* The same of images without classes: every image of a folder that holds images, or the one image
 * that `path` is. *found: it is one of both; then n_classes is 0 and every label -1. */
fl_status fl_image_folder_list_loose(const char *path, fl_image_folder *out,
                                     bool *found) FL_MUST_CHECK;
void fl_image_folder_fini(fl_image_folder *folder);

#endif
