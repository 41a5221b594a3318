# Installs Kafka into the directory $1: the jars of the pom $2, in libs/, and bootstrap.checkpoint,
# the first file of every broker's data.
set -eu
printf '%s' "$2" >"$1/pom.xml"
# Maven's usual repository does not support several processes.
mvn -B -q -ntp -f "$1/pom.xml" "-Dmaven.repo.local=$1/m2" "-DoutputDirectory=$1/libs" \
    -DincludeScope=runtime org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy-dependencies
rm -rf "$1/m2"

# The format tool takes a second per broker. Only meta.properties differs between brokers, and the
# tests can write it.
cat >"$1/format.properties" <<END
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:9093
listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
log.dirs=$1/formatted
END
java -cp "$1/libs/*" -Dorg.slf4j.simpleLogger.defaultLogLevel=warn kafka.tools.StorageTool format \
    -t AAAAAAAAAAAAAAAAAAAABA -c "$1/format.properties" >/dev/null
mv "$1/formatted/bootstrap.checkpoint" "$1/"
rm -r "$1/formatted" "$1/format.properties"
