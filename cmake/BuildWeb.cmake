# cmake -DSOURCE=web -DSHARED=build/web -DDIST= -DOUT=DIR -DESBUILD=esbuild -P BuildWeb.cmake
# Puts the page's files into OUT: from DIST where that is said, else bundled from SOURCE. The one
# library that the page uses is fetched into SHARED. Several builds may do so at once.
cmake_minimum_required(VERSION 3.25)

file(MAKE_DIRECTORY ${OUT})
# They are of now, even if they are the same.
function(give)
  foreach(file ${ARGN})
    file(COPY ${file} DESTINATION ${OUT})
    cmake_path(GET file FILENAME name)
    file(TOUCH ${OUT}/${name})
  endforeach()
endfunction()

if(DIST)
  give(${DIST}/index.html ${DIST}/app.js ${DIST}/app.css ${DIST}/icon.svg)
  return()
endif()

# uPlot draws the charts. The hash is the "integrity" of its package in npm's registry.
set(package uplot-1.6.32)
set(hash 2883159c6ebccefbb95d751b0b82d010f9e1c0ec41b8bc96d401eda66e882935c89a46cb824332fa369b8cb8122cc6ac36e186cd09bf7a9ded3a4c93c6989023)
file(MAKE_DIRECTORY ${SHARED})
file(LOCK ${SHARED}/lock GUARD PROCESS TIMEOUT 600)
if(NOT EXISTS ${SHARED}/${package}/uplot)
  set(archive ${SHARED}/${package}.tgz)
  foreach(try RANGE 2)
    file(DOWNLOAD https://registry.npmjs.org/uplot/-/${package}.tgz ${archive}
         STATUS status INACTIVITY_TIMEOUT 30 TLS_VERIFY OFF)  # the hash says what it is
    list(GET status 0 failed)
    if(NOT failed)
      break()
    endif()
  endforeach()
  if(failed)
    list(GET status 1 why)
    message(FATAL_ERROR "${package}, which draws the web page's charts, could not be fetched from "
                        "registry.npmjs.org (${why}). Without a network, pass -DBATON_WEB_DIST=DIR "
                        "with a page that was built elsewhere.")
  endif()
  file(SHA512 ${archive} is)
  if(NOT is STREQUAL hash)
    file(REMOVE ${archive})
    message(FATAL_ERROR "what registry.npmjs.org gave as ${package}.tgz is not that package: its "
                        "SHA-512 is ${is}")
  endif()
  file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${SHARED}/${package})
  file(RENAME ${SHARED}/${package}/package ${SHARED}/${package}/uplot)
  file(REMOVE ${archive})
endif()

# One script and one style sheet with fixed names, for batond to embed; nothing inline, so that the
# policy "default-src 'self'" is enough.
execute_process(
  COMMAND ${CMAKE_COMMAND} -E env NODE_PATH=${SHARED}/${package}
          ${ESBUILD} ${SOURCE}/src/main.ts --bundle --minify --format=esm --target=es2022
          --legal-comments=none --entry-names=app --outdir=${OUT} --log-level=warning
  RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
if(failed)
  message(FATAL_ERROR "the web page does not build:\n${said}")
endif()
give(${SOURCE}/index.html ${SOURCE}/public/icon.svg)
