# What `cmake --install` puts where: the program, one libfrostline.a of all folders, the public
# headers, and two ways to find them (pkg-config frostline, find_package(frostline)).
set(folder_objects)
foreach(folder IN ITEMS device nn data freeze cache autodp pipe control launcher)
  list(APPEND folder_objects $<TARGET_OBJECTS:frostline_${folder}>)
endforeach()
# Objects that a library was given ready are not among its own.
get_property(targets DIRECTORY "${PROJECT_SOURCE_DIR}" PROPERTY BUILDSYSTEM_TARGETS)
list(FILTER targets INCLUDE REGEX "^frostline_isa_")
foreach(target IN LISTS targets)
  list(APPEND folder_objects $<TARGET_OBJECTS:${target}>)
endforeach()

add_library(frostline_whole STATIC ${folder_objects})
set_target_properties(frostline_whole PROPERTIES OUTPUT_NAME frostline LINKER_LANGUAGE CXX)
# Building the program alone, as ./quickstart does, builds everything that is installed.
add_dependencies(frostline frostline_whole)

# The library is static, so a program that links it links these too. All are in the compiler's search
# path. They are flags, not bare names: CMake would take a name for a target of the user's project.
set(FL_LINK_LIBRARIES gloo zmq yaml jansson microhttpd xxhash ssl crypto jpeg png z gomp stdc++ dl pthread m)
list(TRANSFORM FL_LINK_LIBRARIES PREPEND "-l")
list(JOIN FL_LINK_LIBRARIES " " FL_LINK_FLAGS)

include(CMakePackageConfigHelpers)
set(FL_CMAKE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/frostline)
configure_package_config_file("${PROJECT_SOURCE_DIR}/cmake/frostlineConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/frostlineConfig.cmake" INSTALL_DESTINATION ${FL_CMAKE_DIR}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/frostlineConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion)
# Relative, so that the installed tree may be moved.
file(RELATIVE_PATH FL_UP_TO_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" FL_UP_TO_PREFIX "${FL_UP_TO_PREFIX}")
configure_file("${PROJECT_SOURCE_DIR}/cmake/frostline.pc.in" "${PROJECT_BINARY_DIR}/frostline.pc"
  @ONLY)

install(TARGETS frostline RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(TARGETS frostline_whole ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
# If it was built: ./quickstart and ./check do so.
install(FILES "${PROJECT_BINARY_DIR}/libfrostline_cuda.so" OPTIONAL
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/frostline)
# CMake strips what is a target of its own; nvcc makes this file.
install(CODE "
  set(plugin \"\$ENV{DESTDIR}\${CMAKE_INSTALL_PREFIX}/${CMAKE_INSTALL_LIBDIR}/frostline/libfrostline_cuda.so\")
  if(CMAKE_INSTALL_DO_STRIP AND EXISTS \"\${plugin}\")
    execute_process(COMMAND \"${CMAKE_STRIP}\" --strip-unneeded \"\${plugin}\")
  endif()")
install(FILES "${PROJECT_BINARY_DIR}/frostline.pc"
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES "${PROJECT_BINARY_DIR}/frostlineConfig.cmake"
  "${PROJECT_BINARY_DIR}/frostlineConfigVersion.cmake" DESTINATION ${FL_CMAKE_DIR})
install(FILES LICENSE README.md ARCHITECTURE.md OPTIONAL DESTINATION ${CMAKE_INSTALL_DOCDIR})
# The layout of the source tree, so that links between the pages hold.
install(DIRECTORY docs configs examples DESTINATION ${CMAKE_INSTALL_DOCDIR}
  FILES_MATCHING PATTERN "*.md" PATTERN "*.json" PATTERN "*.svg" PATTERN "*.png" PATTERN "*.yaml" PATTERN "*.c")

# Man pages and completion, which the program writes from its table of commands, compressed as
# Debian has them.
set(FL_PAGES "${PROJECT_BINARY_DIR}/share")
find_program(GZIP gzip)
if(GZIP)
  set(compress_pages COMMAND "${GZIP}" -9 -n -f -r "${FL_PAGES}/man")
endif()
add_custom_command(TARGET frostline POST_BUILD
  COMMAND "${CMAKE_COMMAND}" -E rm -rf "${FL_PAGES}"
  COMMAND frostline pages "${FL_PAGES}"
  ${compress_pages} VERBATIM)
install(DIRECTORY "${FL_PAGES}/man/" DESTINATION ${CMAKE_INSTALL_MANDIR})
install(DIRECTORY "${FL_PAGES}/bash-completion" "${FL_PAGES}/zsh" "${FL_PAGES}/fish"
  DESTINATION ${CMAKE_INSTALL_DATADIR})
