process MILLRACE {
    tag "$meta.id"
    label 'process_high'

    conda "${moduleDir}/environment.yml"

    input:
    tuple val(meta), path(input)   // what is cut into records
    path shared                    // databases and other files that the command reads whole
    val command                    // the serial command, in which INPUT and OUTPUT stand for the two files
    val output                     // name of the output

    output:
    tuple val(meta), path("${output}"), emit: result
    path "versions.yml"               , emit: versions

    when:
    task.ext.when == null || task.ext.when

    script:
    def args = task.ext.args ?: ''
    def serial = command.replace('INPUT', "${input}").replace('OUTPUT', "${output}")
    """
    millrace run --slots ${task.cpus} ${args} -- ${serial}

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        millrace: \$(millrace --version | sed 's/.* //')
    END_VERSIONS
    """

    stub:
    """
    touch ${output}

    cat <<-END_VERSIONS > versions.yml
    "${task.process}":
        millrace: \$(millrace --version | sed 's/.* //')
    END_VERSIONS
    """
}
