# Profile-guided optimization: PV_PGO=ON builds everything once more beforehand, instrumented, has it pass traffic over the software NIC
# (tools/train.py) and compiles by what was counted: what runs for a packet is in fewer cache lines then (native/doc/xdp.md has the figures).
# GCC only, and with libibverbs' headers, without which there is no software NIC to train with; else it changes nothing.
option(PV_PGO "optimize by a profile of this very build (GCC)" OFF)
option(PV_INSTRUMENT "what PV_PGO builds first" OFF)

if(PV_INSTRUMENT)
  set(PV_PGO OFF)
  target_compile_options(pv_flags INTERFACE -fprofile-generate -fprofile-update=prefer-atomic)
  target_link_options(pv_flags INTERFACE -fprofile-generate)
endif()
if(PV_PGO AND (NOT CMAKE_C_COMPILER_ID STREQUAL "GNU" OR CMAKE_C_COMPILER_VERSION VERSION_LESS 10 OR CMAKE_CROSSCOMPILING OR PV_SANITIZE
               OR NOT PV_HAVE_VERBS OR NOT PV_BENCH))
  message(STATUS "PV_PGO: not with this compiler, or without libibverbs: built without a profile")
  set(PV_PGO OFF)
endif()
if(NOT PV_PGO)
  return()
endif()

find_package(Python REQUIRED COMPONENTS Interpreter)
set(instrumented ${CMAKE_BINARY_DIR}/instrumented)
set(PV_PROFILE ${CMAKE_BINARY_DIR}/profile.stamp)
file(GLOB_RECURSE profiled CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/native/*.[ch])
# What is counted in instrumented/CMakeFiles/X goes to CMakeFiles/X, where GCC looks for it when it compiles X.
add_custom_command(OUTPUT ${PV_PROFILE}
  COMMAND ${CMAKE_COMMAND} -S ${PROJECT_SOURCE_DIR} -B ${instrumented} -G ${CMAKE_GENERATOR} -DCMAKE_MAKE_PROGRAM=${CMAKE_MAKE_PROGRAM}
          -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER} -DCMAKE_C_FLAGS=${CMAKE_C_FLAGS} -DCMAKE_BUILD_TYPE=${CMAKE_BUILD_TYPE} -DPV_INSTRUMENT=ON
  COMMAND ${CMAKE_COMMAND} --build ${instrumented} --target pyvma-bench pyvma_preload pyvma-softnic
  COMMAND ${Python_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tools/train.py ${instrumented} ${CMAKE_BINARY_DIR}
  COMMAND ${CMAKE_COMMAND} -E touch ${PV_PROFILE}
  DEPENDS ${profiled} ${PROJECT_SOURCE_DIR}/tools/train.py
  COMMENT "Training: an instrumented build passes traffic over the software NIC"
  VERBATIM)
add_custom_target(profile DEPENDS ${PV_PROFILE})
# Code that the training never met (drivers' paths) is compiled as without a profile. Copies remain the C library's: by the sizes that it
# met GCC would have them word by word, whatever the size (-fvpt).
target_compile_options(pv_flags INTERFACE -fprofile-use -fno-vpt -fprofile-partial-training -Wno-missing-profile)
# What a packet goes through is a chain of small functions in many files. Calls that the profile says are hot are inlined, across files as well
# and further than GCC would by itself: each taken branch that a message needs is one that the kernel's code, between two messages, has to
# learn anew (native/doc/xdp.md).
set(PV_INLINE --param=max-inline-insns-auto=120 --param=inline-min-speedup=2)
if(CMAKE_C_COMPILER_AR AND CMAKE_C_COMPILER_RANLIB) # they know such objects, as binutils' own do where GCC's plugin is installed
  set(CMAKE_AR ${CMAKE_C_COMPILER_AR})
  set(CMAKE_RANLIB ${CMAKE_C_COMPILER_RANLIB})
endif()

# What is compiled by it, and anew when it changed.
function(pv_profiled)
  foreach(target ${ARGN})
    add_dependencies(${target} profile)
    get_target_property(sources ${target} SOURCES)
    list(FILTER sources INCLUDE REGEX "\\.c$")
    set_property(SOURCE ${sources} APPEND PROPERTY OBJECT_DEPENDS ${PV_PROFILE})
  endforeach()
endfunction()

# Object libraries whose functions are inlined across files, and what is linked of them.
function(pv_inlined objects linked)
  foreach(target ${objects})
    target_compile_options(${target} PRIVATE -flto ${PV_INLINE})
  endforeach()
  foreach(target ${linked})
    target_link_options(${target} PRIVATE -flto=auto ${PV_INLINE} -Wno-error)
  endforeach()
endfunction()
