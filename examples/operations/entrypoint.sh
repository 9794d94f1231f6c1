#!/bin/sh
# What the image runs: a command of sqlstream, such as `serve`. Spark on Kubernetes starts its executors with the word `executor`,
# and says everything else in variables.
set -eu
case "${1:-serve}" in
executor) ;;
# A program, as YARN starts its containers with one.
/* | sh | bash | python) exec "$@" ;;
*) exec sqlstream "${@:-serve}" ;;
esac

jars=$(python -c 'import os, pyspark; print(os.path.join(os.path.dirname(pyspark.__file__), "jars"))')
# Spark writes each option of Java into a variable of its own: SPARK_JAVA_OPT_0, SPARK_JAVA_OPT_1, ..
set --
number=0
while eval "[ -n \"\${SPARK_JAVA_OPT_$number:-}\" ]"; do
    eval "set -- \"\$@\" \"\$SPARK_JAVA_OPT_$number\""
    number=$((number + 1))
done
exec "${JAVA_HOME:+$JAVA_HOME/bin/}java" "$@" \
    "-Xms$SPARK_EXECUTOR_MEMORY" "-Xmx$SPARK_EXECUTOR_MEMORY" \
    -cp "${SPARK_CONF_DIR:+$SPARK_CONF_DIR:}${SPARK_CLASSPATH:+$SPARK_CLASSPATH:}$jars/*" \
    org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend \
    --driver-url "$SPARK_DRIVER_URL" \
    --executor-id "$SPARK_EXECUTOR_ID" \
    --cores "$SPARK_EXECUTOR_CORES" \
    --app-id "$SPARK_APPLICATION_ID" \
    --hostname "$SPARK_EXECUTOR_POD_IP" \
    --resourceProfileId "$SPARK_RESOURCE_PROFILE_ID" \
    --podName "$SPARK_EXECUTOR_POD_NAME"
