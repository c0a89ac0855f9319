# Everything comes from Debian packages; ./setup installs them.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
find_package(OpenMP REQUIRED COMPONENTS C)
find_package(ZLIB REQUIRED)
find_package(JPEG REQUIRED) # libjpeg-turbo
find_package(PNG REQUIRED)
find_package(Gloo REQUIRED)

# Debian's headers come in as system headers, so that our warnings are about our code. The folders are read
# from the cache: where a package has -isystem, the first configuration alone has it in a variable that hides
# them, and the second one would change the flags and compile most files again.
function(fl_pkg target)
  pkg_check_modules(${target}_pkg REQUIRED ${ARGN})
  add_library(${target} INTERFACE)
  target_include_directories(${target} SYSTEM INTERFACE $CACHE{${target}_pkg_INCLUDE_DIRS})
  target_link_libraries(${target} INTERFACE ${${target}_pkg_LINK_LIBRARIES})
endfunction()

fl_pkg(fl_zmq libzmq>=4.3)
fl_pkg(fl_yaml yaml-0.1)
fl_pkg(fl_jansson jansson) # requests: refuses bad UTF-8 and keys given twice
fl_pkg(fl_ncurses ncursesw) # the screen of `frostline top`
fl_pkg(fl_microhttpd libmicrohttpd) # metrics: HTTP that survives hostile clients
fl_pkg(fl_xxhash libxxhash)
fl_pkg(fl_openssl libssl>=3.0 libcrypto) # TLS 1.3 between workers of several hosts
