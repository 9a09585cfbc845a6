# cmake -DSOURCE=web -DSHARED=build/web -DDIST= -DOUT=DIR -DNPM=npm -P BuildWeb.cmake
# Puts the page's built files into OUT: from DIST where that is said, else built from SOURCE in
# SHARED, unless what lies there is of the same sources. Several builds may do so at once.
cmake_minimum_required(VERSION 3.25)

set(files index.html app.js app.css icon.svg)
function(give from)
  file(MAKE_DIRECTORY ${OUT})
  foreach(file ${files})
    file(COPY_FILE ${from}/${file} ${OUT}/${file} ONLY_IF_DIFFERENT)
    # It is of now, even if it is the same.
    file(TOUCH ${OUT}/${file})
  endforeach()
endfunction()

if(DIST)
  give(${DIST})
  return()
endif()

file(MAKE_DIRECTORY ${SHARED})
file(LOCK ${SHARED}/lock GUARD PROCESS TIMEOUT 600)

file(GLOB_RECURSE sources RELATIVE ${SOURCE} ${SOURCE}/src/* ${SOURCE}/public/*)
list(APPEND sources index.html package.json package-lock.json tsconfig.json vite.config.js)
list(SORT sources)
set(hashes "")
foreach(file ${sources})
  file(SHA256 ${SOURCE}/${file} hash)
  string(APPEND hashes "${hash} ${file}\n")
endforeach()

set(stamp "")
if(EXISTS ${SHARED}/stamp)
  file(READ ${SHARED}/stamp stamp)
endif()
if(NOT stamp STREQUAL hashes)
  file(REMOVE ${SHARED}/stamp)
  file(REMOVE_RECURSE ${SHARED}/src ${SHARED}/public ${SHARED}/dist)
  foreach(file ${sources})
    get_filename_component(folder ${SHARED}/${file} DIRECTORY)
    file(MAKE_DIRECTORY ${folder})
    file(COPY_FILE ${SOURCE}/${file} ${SHARED}/${file})
  endforeach()
  # What npm installed stays as long as the lock file does.
  file(SHA256 ${SOURCE}/package-lock.json wanted)
  set(installed "")
  if(EXISTS ${SHARED}/node_modules/.baton-lock)
    file(READ ${SHARED}/node_modules/.baton-lock installed)
  endif()
  if(NOT installed STREQUAL wanted)
    execute_process(COMMAND ${NPM} ci --ignore-scripts --no-audit --no-fund --loglevel=error
                    WORKING_DIRECTORY ${SHARED} RESULT_VARIABLE failed OUTPUT_QUIET)
    if(failed)
      message(FATAL_ERROR "npm could not fetch what builds the web page (see above). Without a "
                          "network, pass -DBATON_WEB_DIST=DIR with the files built elsewhere.")
    endif()
    file(WRITE ${SHARED}/node_modules/.baton-lock ${wanted})
  endif()
  execute_process(COMMAND ${NPM} run --silent build WORKING_DIRECTORY ${SHARED}
                  RESULT_VARIABLE failed OUTPUT_VARIABLE said ERROR_VARIABLE said)
  if(failed)
    message(FATAL_ERROR "the web page does not build:\n${said}")
  endif()
  file(WRITE ${SHARED}/stamp "${hashes}")
endif()
give(${SHARED}/dist)
