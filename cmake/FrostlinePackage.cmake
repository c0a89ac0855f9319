# `cpack -G DEB` in the build folder: one package of all that `cmake --install` installs. The program's
# dependencies are what dpkg-shlibdeps finds; who links the library needs the -dev packages of
# FL_LINK_LIBRARIES, which are suggested.
include(FrostlinePrefix)
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME frostline)
set(CPACK_PACKAGE_VERSION "${PROJECT_VERSION}")
set(CPACK_PACKAGE_VENDOR Frostline)
set(CPACK_PACKAGE_CONTACT "Frostline <frostline@example.org>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
# By DESTDIR: the prefix that is written into files is /usr, not the folder that cpack fills.
set(CPACK_SET_DESTDIR ON)
set(CPACK_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# The head of a run on several hosts starts their agents by ssh.
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "openssh-client")
set(CPACK_DEBIAN_PACKAGE_SUGGESTS
  "g++, pkg-config, libgloo-dev, libzmq3-dev, libyaml-dev, libjansson-dev, libmicrohttpd-dev, libxxhash-dev, libssl-dev, zlib1g-dev, libjpeg62-turbo-dev, libpng-dev, dataset-fashion-mnist")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "elastic pipeline and data parallel training")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION
"Frostline trains transformers, and other models that are lists of layers,
on several worker processes. It cuts a model into pipeline stages, runs
several copies of the pipeline, and chooses the fastest combination. While
the lower layers converge, it freezes them, repacks the others into shorter
pipelines and caches what the frozen ones compute.

The package contains the program, the C library with its headers, and the
documentation.")

# What Debian wants of a package beside the files: its licence, its changes, both in their places.
set(doc "${CMAKE_INSTALL_DATADIR}/doc/frostline")
configure_file("${PROJECT_SOURCE_DIR}/packaging/changelog.in" "${PROJECT_BINARY_DIR}/changelog"
  @ONLY)
if(GZIP)
  add_custom_command(TARGET frostline POST_BUILD
    COMMAND "${GZIP}" -9 -n -k -f "${PROJECT_BINARY_DIR}/changelog" VERBATIM)
  install(FILES "${PROJECT_BINARY_DIR}/changelog.gz" RENAME changelog.Debian.gz DESTINATION ${doc})
endif()
install(FILES packaging/copyright DESTINATION ${doc})
foreach(script IN ITEMS smoke service)
  fl_install_with_prefix(PROGRAM packaging/${script}.sh ${CMAKE_INSTALL_LIBDIR}/frostline ${script})
endforeach()
foreach(unit IN ITEMS frostline@ frostline-agent@)
  fl_install_with_prefix(FILE packaging/${unit}.service lib/systemd/system ${unit}.service)
endforeach()

# The package holds what is built already: cpack does not build the tests first.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY TRUE)

include(CPack)
